//! The header and the libraries as C programs see them: compiled and linked by gcc in every way the header names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use perfctr_abi::layout::{
    ABI_MAJOR_MASK, ABI_VERSION, MAX_COUNTERS, SEQ_OFFSET, VPERFCTR_READ_CHILDREN, cpu_type, extension,
    feature, flag, syscall,
};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Where cargo leaves both libraries, built with a shared C library: a build of its own, kept between runs.
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--quiet", "--locked", "--package=libvperfctr-c", "--crate-type=cdylib,staticlib"]);
    cargo.arg("--target-dir").arg(&folder).args(["--", "-Clink-arg=-Wl,-soname,libvperfctr.so.0"]);
    let output = cargo
        .env("RUSTFLAGS", "-Ctarget-feature=-crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(PACKAGE)
        .output()
        .expect("cargo cannot be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let libraries = folder.join("x86_64-unknown-linux-gnu/debug");
    // As it would be installed.
    std::fs::copy(libraries.join("libvperfctr.so"), libraries.join("libvperfctr.so.0"))
        .expect("no shared library");
    libraries
});

fn file(name: &str) -> PathBuf {
    Path::new(PACKAGE).join(name)
}

fn compile<S: AsRef<OsStr>>(compiler: &str, standard: &str, source: &str, to: &Path, more: &[S]) {
    let mut command = Command::new(compiler);
    command.args(WARNINGS).arg(standard).arg("-I").arg(file("../include")).arg(file(source));
    let output = command.args(more).arg("-o").arg(to).output().expect("no C compiler");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", &*LIBRARIES)
        .output()
        .expect("it does not start")
}

/// The ways to link: shared; static library; everything static.
fn ways() -> [(&'static str, Vec<String>); 3] {
    let folder = LIBRARIES.display();
    let archive = format!("{folder}/libvperfctr.a");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    [
        ("shared", words(&[&format!("-L{folder}"), "-lvperfctr"])),
        ("archive", words(&[&archive, "-lgcc_s"])),
        ("static", words(&["-static", &archive, "-lgcc_eh"])),
    ]
}

#[test]
fn the_header_is_c_and_cpp_without_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("header");
    // Last what is run. Debian's gcc does not bring g++ along.
    if Command::new("g++").arg("--version").output().is_ok() {
        compile::<&str>("g++", "-std=c++11", "tests/header.c", &program, &[]);
        compile::<&str>("g++", "-std=c++20", "tests/header.c", &program, &[]);
    } else {
        println!("g++ is not installed: that the header is C++ too was not tested");
    }
    compile::<&str>("gcc", "-std=gnu17", "tests/header.c", &program, &[]);
    compile::<&str>("gcc", "-std=c11", "tests/header.c", &program, &[]);
    let said = String::from_utf8(run(&program, &[]).stdout).unwrap();
    let expected = [
        MAX_COUNTERS as u32,
        ABI_VERSION,
        ABI_MAJOR_MASK,
        syscall::INFO,
        syscall::OPEN,
        syscall::CONTROL,
        syscall::UNLINK,
        syscall::IRESUME,
        syscall::READ,
        feature::RDPMC,
        feature::RDTSC,
        feature::PCINT,
        extension::SEQ,
        extension::INHERIT,
        extension::SAMPLES,
        extension::OTHER_THREADS,
        cpu_type::K8,
        cpu_type::WESTMERE,
        flag::CLOEXEC,
        flag::INHERIT,
        flag::SAMPLES,
        SEQ_OFFSET as u32,
        VPERFCTR_READ_CHILDREN,
        libvperfctr::SI_PMC_OVF as u32,
    ];
    let values: Vec<u32> =
        said.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert_eq!(values, expected, "{said}");
}

#[test]
fn every_declared_function_is_in_the_shared_library_and_nothing_else() {
    let header = std::fs::read_to_string(file("../include/vperfctr.h")).unwrap();
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with(['#', ' ', '\t', 'V']))
        .map(|line| line.split_once('(').unwrap().0.rsplit([' ', '*']).next().unwrap())
        .collect();
    declared.sort_unstable();
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(LIBRARIES.join("libvperfctr.so.0")).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut exported: Vec<&str> = output.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    exported.sort_unstable();
    assert_eq!(exported, declared);
}

#[test]
fn examples_link_in_every_way_and_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = libvperfctr::Driver::info().is_ok();
    let ways = ways();
    let example = |example: &str, (way, arguments): &(&str, Vec<String>)| {
        let program = folder.path().join(format!("{example}-{way}"));
        compile("gcc", "-std=gnu11", &format!("examples/{example}.c"), &program, arguments);
        let output = run(&program, if example == "other_process" { &["true"] } else { &[] });
        let errors = String::from_utf8_lossy(&output.stderr);
        if !loaded {
            assert_eq!(output.status.code(), Some(1), "{example}, {way}: {errors}");
            assert!(errors.contains("Function not implemented"), "{example}, {way}: {errors}");
        }
    };
    ways.iter().for_each(|way| example("self_monitoring", way));
    example("overflow", &ways[0]);
    example("samples", &ways[0]);
    example("other_process", &ways[0]);
}

#[test]
fn null_is_an_error_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bad_handle");
    let [(_, arguments), ..] = ways();
    compile("gcc", "-std=gnu11", "tests/bad_handle.c", &program, &arguments);
    assert_eq!(run(&program, &[]).status.code(), Some(0), "the status is the line in bad_handle.c");
}
