//! The documents: how long they may be, that their links and paths lead somewhere, and that the options they show exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of README.md: what one reads in a minute.
const README_LINES: usize = 100;
/// Bytes of BENCHMARKS.md.
const BENCHMARKS_BYTES: usize = 8_000;
/// First components of paths in the repository.
const FOLDERS: [&str; 6] = ["vmm/", "vpmu/", "guest-driver/", "images/", "tests/", "docs/"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every file that git has or would have, by its path in the repository.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
    listed.lines().filter(|path| repository().join(path).is_file()).map(str::to_owned).collect()
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(repository().join(path)).expect(path)).into_owned()
}

/// The documents by their paths.
fn documents() -> Vec<(String, String)> {
    let documents = files().into_iter().filter(|path| path.ends_with(".md"));
    documents.map(|path| (path.clone(), read(&path))).collect()
}

/// A document without its blocks of code, which are indented or fenced.
fn prose(document: &str) -> String {
    let mut fenced = false;
    let mut text = String::new();
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

/// What stands between one backtick and the next in prose, also across the end of a line.
fn quoted(prose: &str) -> Vec<String> {
    let paragraphs = prose.split("\n\n");
    let words = paragraphs.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    words.map(|words| words.replace('\n', " ")).collect()
}

/// The targets of `[text](target)`.
fn links(prose: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = prose;
    while let Some((_, behind)) = rest.split_once("](") {
        let Some((link, behind)) = behind.split_once(')') else { break };
        found.push(link);
        rest = behind;
    }
    found
}

/// A heading as a link names it: lower case, without punctuation, with dashes for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(document: &str) -> BTreeSet<String> {
    let prose = prose(document);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// What a link of `document` (at `path`) leads to nowhere by; `read` knows the other files.
fn dead_links(path: &str, document: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let is_dead = |link: &&str| {
        let (file, place) = link.split_once('#').unwrap_or((link, ""));
        let text = if file.is_empty() { Some(document.to_owned()) } else { read(&folder.join(file)) };
        match text {
            None => true,
            Some(text) => !place.is_empty() && !anchors(&text).contains(place),
        }
    };
    let text = prose(document);
    let relative = links(&text).into_iter().filter(|link| !link.contains("://"));
    relative.filter(is_dead).map(|link| format!("{path}: {link}")).collect()
}

/// A path of the repository that is named in backticks; with `*` and `{a,b}` only as far as it is literal, and without
/// the test or line that may stand behind it.
fn named_path(words: &str) -> Option<&str> {
    let path = words.split("::").next()?;
    let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains(' ');
    let literal = path.split(['*', '{']).next()?;
    let literal = if literal == path { path } else { &literal[..=literal.rfind('/')?] };
    is_path.then_some(literal)
}

/// Options of our commands that stand on a line: those behind the command's name, up to `--` or another program.
fn options(line: &str) -> Vec<(&'static str, String)> {
    const COMMANDS: [&str; 4] = ["perfvisor", "perfex", "xtask", "--"];
    let mut found = Vec::new();
    let mut command = None;
    for word in line.split_whitespace() {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-');
        let name = word.rsplit('/').next().unwrap_or_default();
        if let Some(known) = COMMANDS.iter().find(|known| **known == name) {
            command = Some(*known).filter(|known| *known != "--");
        } else if let (Some(command), true) = (command, word.starts_with("--")) {
            found.push((command, word.split('=').next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// All that documents say of our commands: their lines of code, and quoted words. An option alone is one of either.
fn said(document: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            // A comment is prose.
            lines.push(line.split("  #").next().unwrap_or_default().to_owned());
        }
    }
    lines.extend(quoted(&prose(document)));
    lines
}

/// Builds our commands as `cargo xtask test` does, and says where they are.
fn commands() -> PathBuf {
    let images = ["--package=perfvisor", "--package=init", "--package=perfex", "--package=tests"];
    for packages in [&images[..], &["--package=images", "--bin=xtask"]] {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--release", "--quiet", "--offline"]).args(packages).current_dir(repository());
        assert!(build.status().expect("cargo runs").success(), "{build:?}");
    }
    Path::new(env!("CARGO_BIN_EXE_spin")).parent().expect("a folder").with_file_name("release")
}

/// Whether a line cites a document of the design, which is not in this repository, so that nobody can look it up.
fn cites_elsewhere(line: &str) -> bool {
    let design = concat!("DESIGN", ".md");
    let facts = line.split("FACTS").skip(1);
    let is_cited = |rest: &str| {
        let of_file = rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(char::is_alphabetic));
        let section =
            rest.strip_prefix(' ').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        of_file || section || rest.starts_with(".md") || rest.starts_with(" section")
    };
    line.contains(design) || facts.into_iter().any(is_cited)
}

/// The help of our commands and their subcommands.
fn helps() -> Vec<(&'static str, String)> {
    let folder = commands();
    let help = |program: &'static str, words: &[&str]| {
        let output = Command::new(folder.join(program)).args(words).arg("--help").output().expect(program);
        assert!(output.status.success(), "{program} {words:?}");
        (program, String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut helps = vec![help("perfex", &[]), help("perfvisor", &[])];
    for words in [&["run"][..], &["dump"], &["list"], &["doctor"], &["lab", "exec"], &["lab", "stop"]] {
        helps.push(help("perfvisor", words));
    }
    for task in ["setup", "demo", "test", "bench", "fuzz", "clean"] {
        helps.push(help("xtask", &[task]));
    }
    helps
}

fn has_option(help: &str, option: &str) -> bool {
    let mut words = help.split(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_'));
    words.any(|word| word == option || option == NEW && word == OLD)
}

#[test]
fn readme_is_one_page() {
    let lines = read("README.md").lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines, {README_LINES} are allowed");
}

#[test]
fn benchmarks_are_a_summary() {
    let bytes = read("BENCHMARKS.md").len();
    assert!(bytes <= BENCHMARKS_BYTES, "BENCHMARKS.md has {bytes} bytes, {BENCHMARKS_BYTES} are allowed");
}

#[test]
fn links_lead_somewhere() {
    let read = |path: &Path| {
        let path = repository().join(path);
        if path.is_dir() {
            Some(String::new())
        } else {
            Some(String::from_utf8_lossy(&fs::read(path).ok()?).into())
        }
    };
    let dead = documents().iter().flat_map(|(path, text)| dead_links(path, text, read)).collect::<Vec<_>>();
    assert_eq!(dead, [""; 0]);
}

#[test]
fn paths_exist() {
    let mut gone = Vec::new();
    for (path, text) in documents() {
        for words in quoted(&prose(&text)) {
            if let Some(named) = named_path(&words).filter(|named| !repository().join(named).exists()) {
                gone.push(format!("{path}: {named}"));
            }
        }
    }
    assert_eq!(gone, [""; 0]);
}

#[test]
fn options_exist() {
    let helps = helps();
    let mut unknown = BTreeSet::new();
    for (path, text) in documents() {
        for line in said(&text) {
            for (command, option) in options(&line) {
                let mut known = helps.iter().filter(|(name, _)| *name == command);
                if !known.any(|(_, help)| has_option(help, &option)) {
                    unknown.insert(format!("{path}: {command} {option}"));
                }
            }
            // An option by itself: of any command.
            if line.starts_with("--")
                && let Some(option) = line.split([' ', '=']).next().filter(|option| option.len() > 2)
                && !OTHERS.contains(&option)
                && !helps.iter().any(|(_, help)| has_option(help, option))
            {
                unknown.insert(format!("{path}: {option}"));
            }
        }
    }
    assert_eq!(unknown.into_iter().collect::<Vec<_>>(), [""; 0]);
}

/// Options of other programs (pmctest, checkpatch), and an old name that is hidden.
const OTHERS: [&str; 4] = ["--stress", "--fuzz", "--strict", OLD];
/// A name that documents use already, and the one that the command still has.
const NEW: &str = "--pmu-registers";
const OLD: &str = concat!("--msr", "-door");

#[test]
fn nothing_refers_to_documents_that_are_not_here() {
    let mut found = Vec::new();
    for path in files() {
        for (number, line) in read(&path).lines().enumerate() {
            if cites_elsewhere(line) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn what_is_wrong_is_found() {
    let read =
        |path: &Path| (path == Path::new("docs/there.md")).then(|| "## A heading, of two\n".to_owned());
    let text = "[a](there.md) [b](there.md#a-heading-of-two) [c](#here) [d](gone.md) [e](there.md#gone)\n\n## Here\n";
    assert_eq!(
        dead_links("docs/page.md", text, read),
        ["docs/page.md: gone.md", "docs/page.md: there.md#gone"]
    );
    assert_eq!(quoted("a `b\nc` d\n\n`e`"), ["b c", "e"]);
    assert_eq!(named_path("vmm/src/cli.rs"), Some("vmm/src/cli.rs"));
    assert_eq!(named_path("vpmu/tests/pv.rs::a_test"), Some("vpmu/tests/pv.rs"));
    assert_eq!(named_path("guest-driver/module/native*.c"), Some("guest-driver/module/"));
    assert_eq!(named_path("cargo xtask"), None);
    let shown = "    sudo perfvisor dump --host --cpus 0-1 && perfvisor run --tty -- perfex --list ls";
    let options = options(shown);
    let expected =
        [("perfvisor", "--host"), ("perfvisor", "--cpus"), ("perfvisor", "--tty"), ("perfex", "--list")];
    assert!(options.iter().map(|(command, option)| (*command, &option[..])).eq(expected), "{options:?}");
    for cited in ["as FACTS", " 1.2 says", "see FACTS", "-perf.md", "DESIGN", ".md, 3"].chunks(2) {
        assert!(cites_elsewhere(&cited.concat()), "{cited:?}");
    }
    assert!(!cites_elsewhere("for fact in &FACTS {") && !cites_elsewhere("k7::FACTS, k8::FACTS[0]"));
    assert!(has_option("  --pmu <MODEL>", "--pmu") && !has_option("  --pmu-registers", "--pmu"));
}
