//! Debian's archive as a place to fetch from: packages are downloaded and unpacked, never installed, and the
//! machine's own apt is left as it is.
//!
//! apt runs with its state, cache and sources in our cache folder. The sources are the machine's own, with the
//! source packages of the same suites added ([`sources`]).
//!
//! What a set-up found is *pinned*: file names and hashes are written down, and later set-ups use the same
//! files without asking the network, until `--refresh` asks the archive for what is current.

pub mod sources;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::artefact;
use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;

/// The machine's apt, working in a private place.
pub struct Archive {
    folder: PathBuf,
    log: PathBuf,
    refresh: bool,
    updated: Cell<bool>,
}

/// One file in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// What apt is asked for: `package=version`, or `src:package`.
    request: String,
    /// The name of the file.
    pub file: String,
    /// Its hash.
    pub sha256: String,
}

/// The prefix of a request for a source package.
const SOURCE: &str = "src:";

impl Archive {
    /// Prepares to use the archive; nothing is fetched yet. With `refresh`, pinned versions are looked up again.
    pub fn open(layout: &Layout, refresh: bool) -> Self {
        Self { folder: layout.archive_folder(), log: layout.log("apt"), refresh, updated: Cell::new(false) }
    }

    /// The files that `resolve` names, as they were pinned under `name` by an earlier set-up, or looked up now.
    pub fn pinned(&self, name: &str, resolve: impl FnOnce(&Self) -> Result<Vec<Pin>>) -> Result<Vec<Pin>> {
        let path = self.folder.join("pins").join(name);
        if !self.refresh
            && let Ok(text) = fs::read_to_string(&path)
            && let Some(pins) = parse_pins(&text)
        {
            return Ok(pins);
        }
        let pins = resolve(self)?;
        let text: String =
            pins.iter().map(|pin| format!("{} {} {}\n", pin.request, pin.file, pin.sha256)).collect();
        artefact::remove(&path)?;
        fs::create_dir_all(self.folder.join("pins"))?;
        let scratch = path.with_extension("new");
        fs::write(&scratch, text).with_context(|| format!("cannot write {}", scratch.display()))?;
        artefact::rename(&scratch, &path)?;
        Ok(pins)
    }

    /// Looks up the current version of a binary package.
    pub fn binary(&self, package: &str) -> Result<Pin> {
        let record = self.record(package)?;
        let field = |name| field(&record, name).with_context(|| format!("apt gives no {name} for {package}"));
        let version = field("Version")?;
        // As apt itself names the files it downloads: a colon would not do everywhere.
        let file = format!("{package}_{}_{}.deb", version.replace(':', "%3a"), field("Architecture")?);
        Ok(Pin { request: format!("{package}={version}"), file, sha256: field("SHA256")?.to_owned() })
    }

    /// The names of the packages that the current version of a package depends on.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let record = self.record(package)?;
        let depends = field(&record, "Depends").unwrap_or_default();
        let alternatives = depends.split([',', '|']);
        Ok(alternatives
            .filter_map(|dependency| Some(dependency.split_whitespace().next()?.to_owned()))
            .collect())
    }

    /// Looks up the file of a source package whose name ends so.
    pub fn source(&self, package: &str, suffix: &str) -> Result<Pin> {
        self.update()?;
        let text =
            self.apt("apt-get")?.args(["source", "--download-only", "--print-uris", package]).text()?;
        let file = text.lines().find_map(|line| {
            // 'URI' file size SHA256:hash
            let mut words = line.strip_prefix('\'')?.split_whitespace().skip(1);
            let file = words.next().filter(|file| file.ends_with(suffix))?;
            Some((file.to_owned(), words.nth(1)?.strip_prefix("SHA256:")?.to_owned()))
        });
        let (file, sha256) =
            file.with_context(|| format!("source package {package} has no file *{suffix}"))?;
        Ok(Pin { request: format!("{SOURCE}{package}"), file, sha256 })
    }

    /// The downloaded files; those that aren't there are fetched first.
    pub fn fetch(&self, pins: &[Pin]) -> Result<Vec<PathBuf>> {
        let downloads = self.folder.join("files");
        let path = |pin: &Pin| downloads.join(&pin.file);
        let missing: Vec<&Pin> = pins.iter().filter(|pin| !path(pin).is_file()).collect();
        if missing.is_empty() {
            return Ok(pins.iter().map(path).collect());
        }
        let incoming = self.folder.join("incoming");
        artefact::remove(&incoming)?;
        for folder in [&incoming, &downloads] {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        self.update()?;
        let names: Vec<&str> = missing.iter().map(|pin| pin.file.as_str()).collect();
        let step = Step::begin(format!("fetch {}", names.join(" ")));
        let moved = "if the archive has moved on from this version: `cargo xtask setup --refresh`";
        let (sources, binaries): (Vec<&str>, Vec<&str>) =
            missing.iter().map(|pin| pin.request.as_str()).partition(|request| request.starts_with(SOURCE));
        let sources = sources.iter().filter_map(|request| request.strip_prefix(SOURCE)).collect();
        for (command, requests) in
            [(["source", "--download-only"].as_slice(), sources), (&["download"], binaries)]
        {
            if requests.is_empty() {
                continue;
            }
            let apt = self.apt("apt-get")?.arg("-qq").args(command).args(&requests).folder(&incoming);
            apt.log(&self.log)
                .run()
                .with_context(|| format!("cannot fetch {}; {moved}", requests.join(" ")))?;
        }
        let mut bytes = 0;
        for pin in missing {
            let fetched = incoming.join(&pin.file);
            if !fetched.is_file() || artefact::sha256(&fetched)? != pin.sha256 {
                bail!("what apt fetched for {} isn't the pinned file {}; {moved}", pin.request, pin.file);
            }
            bytes += fs::metadata(&fetched)?.len();
            artefact::rename(&fetched, &path(pin))?;
        }
        artefact::remove(&incoming)?;
        step.done(&format!("{:.1} MB", bytes as f64 / 1e6));
        Ok(pins.iter().map(path).collect())
    }

    /// Fetches binary packages and unpacks them over each other into a folder.
    pub fn unpack(&self, pins: &[Pin], folder: &Path) -> Result<()> {
        for file in self.fetch(pins)? {
            Program::new("dpkg-deb").arg("-x").arg(file).arg(folder).run()?;
        }
        Ok(())
    }

    /// Forgets a downloaded file that is big and has served its purpose.
    pub fn discard(&self, pin: &Pin) -> Result<()> {
        artefact::remove(&self.folder.join("files").join(&pin.file))
    }

    /// What apt knows about the version of a package it would install.
    fn record(&self, package: &str) -> Result<String> {
        self.update()?;
        let text = self.apt("apt-cache")?.args(["show", "--no-all-versions", package]).text();
        text.with_context(|| {
            format!(
                "package {package} isn't in the archives that apt is configured for on this machine; \
                 perfvisor needs Debian 12 with bookworm, bookworm-updates and bookworm-security, component main"
            )
        })
    }

    /// Brings the private package lists up to date, once in a process.
    fn update(&self) -> Result<()> {
        if self.updated.get() {
            return Ok(());
        }
        let step = Step::begin("update the package lists");
        sources::write(&self.folder.join("sources"), Path::new("/etc/apt"))?;
        // Without the error mode apt says success when it could fetch nothing.
        let update = self.apt("apt-get")?.args(["-qq", "-o", "APT::Update::Error-Mode=any", "update"]);
        update.log(&self.log).run().context(
            "cannot update the package lists; check the network and apt's configuration (`apt-get update`)",
        )?;
        self.updated.set(true);
        step.done("");
        Ok(())
    }

    fn apt(&self, command: &str) -> Result<Program> {
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = self.folder.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let place = |name: &str, folder: &str| format!("{name}={}", self.folder.join(folder).display());
        let options = [
            place("Dir::State::lists", "lists/"),
            place("Dir::Cache", "cache/"),
            place("Dir::Etc::sourceparts", "sources/"),
            "Dir::Etc::sourcelist=/dev/null".to_owned(),
            // Run by root, apt would fetch as a user who cannot write below root's home folder.
            "APT::Sandbox::User=root".to_owned(),
        ];
        Ok(options.iter().fold(Program::new(command), |apt, option| apt.args(["-o", option])))
    }
}

fn field<'a>(record: &'a str, name: &str) -> Option<&'a str> {
    record.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn parse_pins(text: &str) -> Option<Vec<Pin>> {
    let pin = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let pin = Pin { request: words.next()?, file: words.next()?, sha256: words.next()? };
        words.next().is_none().then_some(pin)
    };
    let pins: Option<Vec<Pin>> = text.lines().map(pin).collect();
    pins.filter(|pins| !pins.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_survive_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        let pin = Pin { request: "a=1".into(), file: "a_1_amd64.deb".into(), sha256: "00".into() };
        let first = Archive::open(&layout, false).pinned("set", |_| Ok(vec![pin.clone()])).unwrap();
        let again = Archive::open(&layout, false).pinned("set", |_| panic!("is pinned")).unwrap();
        assert_eq!(first, again);
        let newer = Pin { request: "a=2".into(), ..pin };
        let refreshed = Archive::open(&layout, true).pinned("set", |_| Ok(vec![newer.clone()])).unwrap();
        assert_eq!(refreshed, [newer]);
    }

    #[test]
    fn broken_pins_are_looked_up_again() {
        assert_eq!(parse_pins(""), None);
        assert_eq!(parse_pins("a=1 file\n"), None);
        assert_eq!(parse_pins("a=1 file hash more\n"), None);
    }
}
