//! What every thread does beside its own business, and how it ends.

use std::os::unix::process::ExitStatusExt;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use perfvisor::confinement::{Confinement, Role};

use crate::thread::{Thread, run, said};

/// Do it, in a confined process. False if there is none of this name.
pub(super) fn make(name: &str, confinement: &Confinement) -> bool {
    match name {
        "memory" => memory(),
        "time" => time(),
        "panic" => panic!("for a test"),
        "abort" => std::process::abort(),
        "threads" => threads(confinement),
        _ => return false,
    }
    true
}

/// Small, large, and growing pieces, which come by brk, mmap and mremap.
fn memory() {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    for round in 0..200usize {
        pieces.push(vec![round as u8; 1 << (round % 21)]);
        if round % 3 == 0 {
            let index = round / 3;
            pieces[index].extend(vec![1; 3 << 20]);
        }
        if round % 7 == 0 {
            pieces.swap_remove(round / 7);
        }
    }
    drop(pieces);
    eprintln!("perfvisor: a message");
}

/// Locks with a limit, and the clock.
fn time() {
    let begin = Instant::now();
    let pair = (Mutex::new(()), Condvar::new());
    let guard = pair.0.lock().unwrap();
    drop(pair.1.wait_timeout(guard, Duration::from_millis(2)).unwrap());
    std::thread::yield_now();
    assert!(begin.elapsed() >= Duration::from_millis(1));
}

/// Threads that the main thread makes later: one for each client of the control socket.
fn threads(confinement: &Confinement) {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let confinement = confinement.clone();
            let serve = move || {
                confinement.enter(Role::Control);
                memory();
            };
            std::thread::Builder::new().name("control".to_owned()).spawn(serve).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

pub(super) fn goes_on((thread, ..): &Thread) {
    for name in ["memory", "time"] {
        let output = run(thread, name);
        assert!(output.status.success(), "{thread}, {name}: {}", said(&output));
    }
    let output = run(thread, "panic");
    let panicked = said(&output);
    assert_eq!(output.status.code(), Some(101), "{thread}: {panicked}");
    assert!(panicked.contains("panicked at") && panicked.contains("for a test"), "{thread}: {panicked}");
    assert!(!panicked.contains("forbids"), "{thread}: {panicked}");
    let output = run(thread, "abort");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{thread}: {}", said(&output));
}

pub(super) fn threads_of_the_main_thread() {
    let output = run("main", "threads");
    assert!(output.status.success(), "{}", said(&output));
}
