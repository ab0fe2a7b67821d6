//! Loads the modules the image lists.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::system::finit_module;

/// Where the image names its modules: one per line in load order, a path and then parameters.
pub const LIST: &str = "/lib/perfvisor/modules.load";

/// Loads everything in [`LIST`]; a module that fails is reported, and the machine goes on without it.
pub fn load_listed() {
    let list = match fs::read_to_string(LIST) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return eprintln!("perfvisor-init: {LIST}: {error}"),
    };
    for (path, parameters) in list.lines().filter_map(parse_line) {
        if let Err(error) = load(Path::new(path), parameters) {
            eprintln!("perfvisor-init: module {path}: {error}");
        }
    }
}

fn parse_line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (path, parameters) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    Some((path, parameters.trim()))
}

fn load(path: &Path, parameters: &str) -> io::Result<()> {
    let parameters = CString::new(parameters)?;
    match finit_module(File::open(path)?, &parameters, 0) {
        Ok(()) => Ok(()),
        // Loaded already, or built in.
        Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            Err(io::Error::other("unknown symbol; is a module it needs missing or listed later? (see dmesg)"))
        }
        Err(Errno::NOEXEC) => {
            Err(io::Error::other("not a module for this kernel, or compressed (see dmesg)"))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_line;

    #[test]
    fn lines() {
        assert_eq!(parse_line("/a.ko"), Some(("/a.ko", "")));
        assert_eq!(parse_line(" /a.ko  x=1 y=2 "), Some(("/a.ko", "x=1 y=2")));
        assert_eq!(parse_line("# comment"), None);
        assert_eq!(parse_line(""), None);
    }
}
