//! The message about a forbidden call may find a reader who stands still: the machine ends all the same.

use std::io::{PipeReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::{Thread, child_of};

/// Long after a child should have ended on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A child that does not outlive its test.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Both fail when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn full_pipe() -> (PipeReader, OwnedFd) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 0x1000).unwrap();
    writer.write_all(&vec![b'x'; size]).unwrap();
    (reader, writer.into())
}

fn full_socket() -> (UnixStream, OwnedFd) {
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    while writer.write(b"x").is_ok() {}
    writer.set_nonblocking(false).unwrap();
    (reader, writer.into())
}

pub(super) fn ends_all_the_same((thread, ..): &Thread) {
    let ((_pipe, to_pipe), (_socket, to_socket)) = (full_pipe(), full_socket());
    for (what, errors) in [("pipe", to_pipe), ("socket", to_socket)] {
        let mut command = child_of(thread, "execve");
        let mut child = Guarded(command.stderr(Stdio::from(errors)).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "{thread}: waits for the reader of a full {what}");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(125), "{thread}, {what}");
    }
}
