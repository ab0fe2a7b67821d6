//! What other threads ask of a vCPU.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use super::kick;
use crate::dump::VcpuDump;

/// What a vCPU can be sent.
#[derive(Debug)]
pub(super) enum Command {
    Run,
    Dump(SyncSender<VcpuDump>),
    End,
}

/// A handle to talk to a vCPU; any thread may hold one.
#[derive(Clone, Debug)]
pub struct Remote {
    commands: Sender<Command>,
    tid: libc::pid_t,
}

impl Remote {
    /// Of the vCPU whose thread `tid` receives what is sent to `commands`.
    pub(super) fn new(commands: Sender<Command>, tid: libc::pid_t) -> Self {
        Self { commands, tid }
    }

    pub(super) fn send(&self, command: Command) {
        // An ended vCPU needs no command.
        if self.commands.send(command).is_ok() {
            kick::kick(self.tid);
        }
    }

    /// Start, or go on.
    pub fn run(&self) {
        self.send(Command::Run);
    }

    /// Ask for the counts; they come over the channel, which closes without them if the vCPU has ended.
    pub fn dump(&self) -> Receiver<VcpuDump> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.send(Command::Dump(sender));
        receiver
    }
}
