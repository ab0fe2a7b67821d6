//! Giving a descriptor on a state to another process, as perfex does.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Send `fd` over a Unix socket, with one byte of data: control messages need some. Allocates nothing, so it may
/// be called between fork and exec.
pub fn send(socket: impl AsFd, fd: BorrowedFd<'_>) -> Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Wait for a descriptor sent by [`send`]; it will not survive an exec. `UnexpectedEof` if the sender is gone.
pub fn receive(socket: impl AsFd) -> Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    rights
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| Error::new(ErrorKind::UnexpectedEof, "no descriptor came over the socket"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_arrives_and_works() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut file = tempfile_with(b"counts");
        send(&ours, file.as_fd()).unwrap();
        drop(ours);
        let mut text = String::new();
        std::fs::File::from(receive(&theirs).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "counts");
        assert_eq!(receive(&theirs).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "counts", "the offset is shared: it is the same open file");
    }

    fn tempfile_with(content: &[u8]) -> std::fs::File {
        use std::io::{Seek, Write};
        let fd = rustix::fs::memfd_create("pass", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file
    }
}
