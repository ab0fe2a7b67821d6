//! Listening sockets that are this user's alone.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Clients that may wait to be taken.
const WAITING: i32 = 64;

/// Listens at `path` with mode 600, whatever the umask: bind(2) takes the mode of the socket's own descriptor, so there is no
/// moment at which the file has another.
pub(crate) fn private_listener(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &address)?;
    listen(&socket, WAITING)?;
    Ok(socket.into())
}
