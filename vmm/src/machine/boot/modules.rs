//! Files that a kernel gets beside itself.

use std::path::PathBuf;
use std::str::FromStr;

use super::image::Image;
use super::room::Room;
use crate::machine::Error;

/// Multiboot promises whole pages to those who ask; others do not mind.
const PAGE: u64 = 4096;

/// A file for the kernel, and words for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The file.
    pub path: PathBuf,
    /// What it is told about the file.
    pub words: String,
}

impl FromStr for Module {
    type Err = String;

    /// `FILE` or `FILE,WORDS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (path, words) = text.split_once(',').unwrap_or((text, ""));
        if path.is_empty() {
            return Err("a module is a file, or a file, a comma and words for it".to_owned());
        }
        Ok(Self { path: path.into(), words: words.to_owned() })
    }
}

/// Where a module is.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) start: u32,
    pub(super) size: u32,
}

/// Put the files behind the kernel, which is where others put them too, in their order.
pub(super) fn load(room: &mut Room<'_>, modules: &[Module]) -> Result<Vec<Loaded>, Error> {
    let from = room.end();
    modules
        .iter()
        .map(|module| {
            let bad = |reason| Error::Module { path: module.path.clone(), reason };
            let mut file = Image::open(&module.path).map_err(bad)?;
            let size = file.length();
            let start = room.find(size, PAGE, from).ok_or_else(|| {
                bad(format!(
                    "{} MiB do not fit beside the kernel; give the guest more memory (--memory)",
                    size.div_ceil(1 << 20)
                ))
            })?;
            file.copy(0, size, room.memory(), start).map_err(bad)?;
            // `find` stays below 4 GiB.
            Ok(Loaded { start: start as u32, size: size as u32 })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_comma_parts_the_file_from_its_words() {
        let module = |path: &str, words: &str| Ok(Module { path: path.into(), words: words.to_owned() });
        assert_eq!("a/b".parse(), module("a/b", ""));
        assert_eq!("a/b,x=1,2 y".parse(), module("a/b", "x=1,2 y"));
        assert!(",x".parse::<Module>().is_err());
    }
}
