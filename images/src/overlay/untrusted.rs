//! Files and folders that somebody else made, and changes while they are copied.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use tempfile::TempDir;

use super::*;

/// Much longer than any of these takes; what waits for a FIFO waits for ever.
const PATIENCE: Duration = Duration::from_secs(20);
/// What may be copied.
const MOST: u64 = 64 << 20;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// What copying `host` to /data gives: the archive, or why not.
fn copied(host: &Path) -> Result<Vec<u8>, String> {
    let (sender, result) = mpsc::channel();
    let request = CopyRequest { host: host.into(), guest: Some("/data".into()) };
    std::thread::spawn(move || {
        let mut overlay = Overlay::new(MOST);
        let copied = overlay.copy(&request).and_then(|()| overlay.to_cpio());
        sender.send(copied.map_err(|error| format!("{error:#}")))
    });
    result.recv_timeout(PATIENCE).expect("copying does not end")
}

fn has(archive: &[u8], text: &str) -> bool {
    archive.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A program of 64 bits for x86-64 that asks for this loader, if it is named, and these libraries, next to itself.
fn program(loader: &str, libraries: &[&str]) -> Vec<u8> {
    const HEADERS: usize = 64 + 3 * 56;
    let mut strings = b"\0$ORIGIN\0".to_vec();
    let mut dynamic: Vec<[u64; 2]> = vec![[15, 1]];
    for library in libraries {
        dynamic.push([1, strings.len() as u64]);
        strings.extend([library.as_bytes(), b"\0"].concat());
    }
    let strings_at = HEADERS + loader.len() + 1;
    let dynamic_at = strings_at + strings.len();
    dynamic.extend([[5, strings_at as u64], [10, strings.len() as u64], [0, 0]]);
    let end = dynamic_at + 16 * dynamic.len();

    let mut out = [b"\x7fELF\x02\x01\x01", &[0; 9][..], &[3, 0, 62, 0, 1, 0, 0, 0]].concat();
    out.extend([0u64, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
    out.extend([0u16, 0, 64, 56, 3, 64, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    let parts = [
        (1u32, 0, end),
        (if loader.is_empty() { 0 } else { 3 }, HEADERS, loader.len() + 1),
        (2, dynamic_at, 16 * dynamic.len()),
    ];
    for (kind, at, size) in parts {
        out.extend([kind, 4].iter().flat_map(|word| word.to_le_bytes()));
        let (at, size) = (at as u64, size as u64);
        out.extend([at, at, at, size, size, 1].iter().flat_map(|word| word.to_le_bytes()));
    }
    out.extend([loader.as_bytes(), b"\0", &strings].concat());
    out.extend(dynamic.as_flattened().iter().flat_map(|word| word.to_le_bytes()));
    out
}

#[test]
fn what_a_program_names_as_its_loader_is_read_only_if_it_can_be_one() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fifo(&at("fifo"));
    fs::write(at("secret"), "nobody's business").unwrap();
    symlink("secret", at("link")).unwrap();
    fs::File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
    for (loader, reason) in [
        ("/dev/zero".into(), "a device"),
        (at("fifo"), "a FIFO"),
        (at("."), "a folder"),
        (at("secret"), "ELF"),
        (at("link"), "ELF"),
        (at("sparse"), "MiB"),
    ] {
        let loader = loader.display().to_string();
        fs::write(at("program"), program(&loader, &[])).unwrap();
        let refused = copied(&at("program")).map(|_| loader.clone()).unwrap_err();
        assert!(refused.contains(reason) && refused.contains(&loader), "{refused}");
    }
    fs::write(at("loader"), program("", &[])).unwrap();
    fs::write(at("program"), program(at("loader").to_str().unwrap(), &[])).unwrap();
    assert!(has(&copied(&at("program")).unwrap(), "loader\0"));
}

#[test]
fn what_a_program_names_as_its_library_is_read_only_if_it_can_be_one() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("loader"), program("", &[])).unwrap();
    let loader = at("loader").display().to_string();
    let zero = "/dev/zero";
    fifo(&at("libfifo.so"));
    fs::write(at("libtext.so"), "no library").unwrap();
    let path = at("libfifo.so").display().to_string();
    for (library, reason) in
        [("libfifo.so", "a FIFO"), (&path, "a FIFO"), (zero, "a device"), ("libtext.so", "none of")]
    {
        fs::write(at("program"), program(&loader, &[library])).unwrap();
        let refused = copied(&at("program")).unwrap_err();
        assert!(refused.contains(reason) && refused.contains(library), "{refused}");
    }
}

/// Long chains of libraries take no stack.
#[test]
fn libraries_of_libraries_of_libraries() {
    const LENGTH: usize = 1000;
    let folder = folder();
    for number in 0..LENGTH {
        let next = format!("lib{}.so", (number + 1) % LENGTH);
        fs::write(folder.path().join(format!("lib{number}.so")), program("", &[&next])).unwrap();
    }
    let archive = copied(&folder.path().join("lib0.so")).unwrap();
    assert!(has(&archive, &format!("lib{}.so\0", LENGTH - 1)));
}

#[test]
fn what_cannot_be_copied_is_named_with_a_remedy() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    fifo(&at("sub/fifo"));
    let refused = copied(folder.path()).unwrap_err();
    assert!(
        refused.contains("sub/fifo") && refused.contains("a FIFO") && refused.contains("file"),
        "{refused}"
    );
    fs::remove_file(at("sub/fifo")).unwrap();
    fs::File::create(at("sub/sparse")).unwrap().set_len(1 << 40).unwrap();
    let refused = copied(folder.path()).unwrap_err();
    assert!(refused.contains("sub/sparse") && refused.contains("--memory"), "{refused}");
    fs::remove_file(at("sub/sparse")).unwrap();
    // Together too much.
    for number in 0..5 {
        fs::File::create(at(&format!("sub/{number}"))).unwrap().set_len(MOST / 4).unwrap();
    }
    assert!(copied(folder.path()).unwrap_err().contains("sub/4"));
}

#[test]
fn a_folder_as_deep_as_can_be_is_refused() {
    let folder = folder();
    let mut deepest = rustix::fs::open(folder.path(), rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..1000 {
        rustix::fs::mkdirat(&deepest, "d", Mode::RWXU).unwrap();
        deepest = rustix::fs::openat(&deepest, "d", rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    }
    let refused = copied(folder.path());
    // The standard library removes it by a descriptor for each level.
    Command::new("rm").arg("-rf").arg(folder.path()).status().unwrap();
    assert!(refused.as_ref().is_err_and(|reason| reason.contains("deep")), "{refused:.300?}");
}

/// Links in a folder stay links, wherever they lead.
#[test]
fn links_in_a_folder_are_not_followed() {
    let folder = folder();
    symlink(".", folder.path().join("round")).unwrap();
    symlink("/dev/zero", folder.path().join("device")).unwrap();
    let archive = copied(folder.path()).unwrap();
    assert!(
        has(&archive, "/dev/zero") && has(&archive, "data/round\0") && !has(&archive, "data/round/round")
    );
}

/// Somebody exchanges a file for a FIFO, and a folder for a link to another folder, again and again.
#[test]
fn a_folder_that_changes_while_it_is_copied() {
    let (folder, outside) = (folder(), folder());
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("copy/sub")).unwrap();
    fs::write(at("copy/file"), "the file").unwrap();
    fifo(&at("fifo"));
    fs::write(outside.path().join("secret"), "nobody's business").unwrap();
    symlink(outside.path(), at("link")).unwrap();
    let over = AtomicBool::new(false);
    let copies: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for (one, other) in [("copy/file", "fifo"), ("copy/sub", "link")] {
                    renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        let copies = std::panic::catch_unwind(|| (0..2000).map(|_| copied(&at("copy"))).collect());
        over.store(true, Ordering::Relaxed);
        copies
    })
    .expect("copies that end");
    let (whole, refused): (Vec<_>, Vec<_>) = copies.into_iter().partition(Result::is_ok);
    assert!(!whole.is_empty() && !refused.is_empty(), "nothing changed in between");
    assert!(whole.iter().flatten().all(|archive| !has(archive, "nobody's business")));
    let strange = refused.iter().filter_map(|result| result.as_ref().err());
    assert_eq!(strange.filter(|reason| !reason.contains("FIFO")).collect::<Vec<_>>(), Vec::<&String>::new());
}
