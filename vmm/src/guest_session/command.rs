//! What to run, and how it is prepared for the protocol.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use images::regular_file::RegularFile;
use session::{ByteString, Exec, FileOffer, FileToSend, WinSize};
use sha2::{Digest, Sha256};

use crate::terminal::on_terminal;

/// No machine has room for a longer file: it keeps its files in memory.
const FILE_MOST: u64 = 3 << 30;

/// Whether the command gets a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Terminal {
    /// If perfvisor's own standard input and output are terminals.
    #[default]
    Auto,
    /// Always.
    Yes,
    /// Never: three pipes.
    No,
}

/// A file of the host that the command finds inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its path on the host.
    pub host: PathBuf,
    /// Its absolute path inside.
    pub inside: PathBuf,
}

/// A command for a machine.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Added to the environment inside.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory; root's home if absent.
    pub cwd: Option<PathBuf>,
    /// User id; root if absent.
    pub uid: Option<u32>,
    /// Whether it gets a terminal.
    pub terminal: Terminal,
    /// Copied before it starts, unless they are there already.
    pub files: Vec<CopiedFile>,
}

/// A command with everything it needs read.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) exec: Exec,
    pub(super) files: Vec<FileToSend>,
    pub(super) terminal: bool,
}

impl Prepared {
    pub(super) fn new(command: Command) -> io::Result<Self> {
        let terminal = match command.terminal {
            Terminal::Auto => on_terminal(),
            Terminal::Yes => true,
            Terminal::No => false,
        };
        let mut env: Vec<_> =
            command.env.into_iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        if terminal
            && let Some(term) = std::env::var_os("TERM")
            && !env.iter().any(|(name, _)| name.0 == b"TERM")
        {
            env.push(("TERM".into(), bytes(term)));
        }
        let exec = Exec {
            argv: command.argv.into_iter().map(bytes).collect(),
            env,
            cwd: command.cwd.map(|path| bytes(path.into_os_string())),
            tty: terminal.then_some(WinSize { rows: 24, cols: 80 }),
            uid: command.uid,
        };
        let files = command.files.iter().map(read).collect::<io::Result<_>>()?;
        Ok(Self { exec, files, terminal })
    }
}

fn bytes(text: OsString) -> ByteString {
    ByteString(text.into_vec())
}

/// The tag is the hash of the very bytes that will be sent, so a file that changes meanwhile does no harm.
fn read(file: &CopiedFile) -> io::Result<FileToSend> {
    let read = || {
        let source = RegularFile::open(&file.host)?;
        let mode = source.mode() & 0o777;
        Ok((source.read(FILE_MOST)?, mode))
    };
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.host.display()));
    let (content, mode) = read().map_err(named)?;
    let tag = Sha256::digest(&content).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let path: &OsStr = file.inside.as_os_str();
    let offer =
        FileOffer { path: ByteString(path.as_bytes().to_vec()), mode, len: content.len() as u64, tag };
    Ok(FileToSend { offer, content: Arc::from(content) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_a_machine_can_hold_are_sent() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::fs::File::create(at("sparse")).unwrap().set_len(1 << 42).unwrap();
        for (host, reason) in
            [(at("fifo"), "FIFO"), ("/dev/zero".into(), "device"), (at("sparse"), "MiB"), (at("."), "folder")]
        {
            let (sender, refused) = std::sync::mpsc::channel();
            let file = CopiedFile { host, inside: "/inside".into() };
            std::thread::spawn(move || sender.send(read(&file).map_err(|error| error.to_string())));
            let refused = refused.recv_timeout(std::time::Duration::from_secs(20)).expect("it ends");
            assert!(refused.as_ref().is_err_and(|text| text.contains(reason)), "{reason}: {refused:?}");
        }
        std::fs::write(at("file"), "content").unwrap();
        let sent = read(&CopiedFile { host: at("file"), inside: "/inside".into() }).unwrap();
        assert_eq!((&sent.content[..], sent.offer.len), (&b"content"[..], 7));
    }
}
