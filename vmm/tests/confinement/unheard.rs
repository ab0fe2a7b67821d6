//! The message about a forbidden call may find a reader who stands still: the machine ends all the same.

use std::io::{PipeReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use images::process::Guarded;

use crate::thread::{Thread, child_of};

/// Long after a child should have ended on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

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
        let mut child = Guarded::spawn(command.stderr(Stdio::from(errors))).unwrap();
        let status = child.wait(PATIENCE);
        let status =
            status.unwrap_or_else(|e| panic!("{thread}: waits for the reader of a full {what}: {e}"));
        assert_eq!(status, Some(125), "{thread}, {what}");
    }
}
