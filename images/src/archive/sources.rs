//! The machine's own apt sources, narrowed to Debian 12's main component and with source packages added.
//!
//! apt knows two formats: one line per source in `*.list`, stanzas (deb822) in `*.sources`. Each is kept in its
//! format, so that options like keys travel as they are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The suites and the component everything is in.
const SUITES: [&str; 3] = ["bookworm", "bookworm-updates", "bookworm-security"];
const COMPONENT: &str = "main";

/// Writes the derived sources of the configuration folder `apt` as files into `folder`.
pub fn write(folder: &Path, apt: &Path) -> Result<()> {
    let mut lines = String::new();
    let mut stanzas = String::new();
    for path in configured(apt) {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("list") => lines += &one_line(&text),
            _ => stanzas += &deb822(&text),
        }
    }
    if lines.is_empty() && stanzas.is_empty() {
        bail!(
            "apt has no source with bookworm and component main in {}; perfvisor's images are made from Debian 12",
            apt.display()
        );
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, text) in [("machine.list", lines), ("machine.sources", stanzas)] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The files that apt reads, in its order.
fn configured(apt: &Path) -> Vec<PathBuf> {
    let mut files = vec![apt.join("sources.list")];
    let parts = fs::read_dir(apt.join("sources.list.d")).into_iter().flatten().flatten();
    let mut parts: Vec<PathBuf> = parts.map(|entry| entry.path()).collect();
    parts.retain(|path| {
        path.extension().is_some_and(|extension| extension == "list" || extension == "sources")
    });
    parts.sort();
    files.extend(parts);
    files.retain(|path| path.is_file());
    files
}

/// `deb [options] uri suite component...`
fn one_line(text: &str) -> String {
    let mut derived = String::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        // deb-src lines are made anew from the deb lines.
        let Some(rest) = line.strip_prefix("deb ").or_else(|| line.strip_prefix("deb\t")) else { continue };
        let rest = rest.trim_start();
        let options =
            if rest.starts_with('[') { rest.find(']').map_or(rest, |end| &rest[..=end]) } else { "" };
        let words: Vec<&str> = rest[options.len()..].split_whitespace().collect();
        let [uri, suite, components @ ..] = words.as_slice() else { continue };
        if SUITES.contains(suite) && components.contains(&COMPONENT) {
            let options = if options.is_empty() { String::new() } else { format!("{options} ") };
            for kind in ["deb", "deb-src"] {
                derived += &format!("{kind} {options}{uri} {suite} {COMPONENT}\n");
            }
        }
    }
    derived
}

/// Stanzas of `Field: value`, with indented continuation lines.
fn deb822(text: &str) -> String {
    let mut derived = String::new();
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in text.split(|line| line.trim().is_empty()) {
        let fields = fields(stanza);
        let words = |name: &str| -> Vec<&str> {
            let field = fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
            field.map(|(_, value)| value.split_whitespace().collect()).unwrap_or_default()
        };
        let suites: Vec<&str> = words("Suites").into_iter().filter(|suite| SUITES.contains(suite)).collect();
        let disabled = words("Enabled").iter().any(|word| word.eq_ignore_ascii_case("no"));
        let usable = words("Types").contains(&"deb") && words("Components").contains(&COMPONENT) && !disabled;
        if suites.is_empty() || !usable {
            continue;
        }
        derived += &format!("Types: deb deb-src\nSuites: {}\nComponents: {COMPONENT}\n", suites.join(" "));
        for (name, value) in &fields {
            if !["Types", "Suites", "Components"].iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
                derived += &format!("{name}:{value}\n");
            }
        }
        derived.push('\n');
    }
    derived
}

fn fields<'a>(stanza: &[&'a str]) -> Vec<(&'a str, String)> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in stanza {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim(), value.to_owned()));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanzas_are_narrowed_and_get_sources() {
        let derived = deb822(
            "Types: deb\n# an old comment\nURIs: http://mirror.test/debian\n\
             Suites: bookworm bookworm-updates bookworm-backports\nComponents: main contrib\n\
             Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n\
             Types: deb-src\nURIs: http://mirror.test/debian\nSuites: bookworm\nComponents: main\n\n\
             Types: deb\nURIs: http://other.test/\nSuites: stable\nComponents: main\n\n\
             Enabled: no\nTypes: deb\nURIs: http://other.test/\nSuites: bookworm\nComponents: main\n",
        );
        assert_eq!(
            derived,
            "Types: deb deb-src\nSuites: bookworm bookworm-updates\nComponents: main\n\
             URIs: http://mirror.test/debian\n\
             Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n"
        );
    }

    #[test]
    fn lines_are_narrowed_and_get_sources() {
        let derived = one_line(
            "# a comment\n\
             deb http://mirror.test/debian bookworm main non-free-firmware # and another\n\
             deb-src http://mirror.test/debian bookworm main\n\
             deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg]  http://mirror.test/security bookworm-security main\n\
             deb http://other.test/ stable main\n\
             deb http://other.test/ bookworm contrib\n\
             deb http://other.test/flat ./\n",
        );
        let security = "[arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://mirror.test/security bookworm-security main";
        assert_eq!(
            derived,
            format!(
                "deb http://mirror.test/debian bookworm main\ndeb-src http://mirror.test/debian bookworm main\n\
                 deb {security}\ndeb-src {security}\n"
            )
        );
    }

    #[test]
    fn disabled_files_are_not_read() {
        let apt = tempfile::tempdir().unwrap();
        let parts = apt.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        fs::write(parts.join("debian.list"), "deb http://a.test/ bookworm main\n").unwrap();
        fs::write(parts.join("more.sources.disabled"), "").unwrap();
        assert_eq!(configured(apt.path()), [parts.join("debian.list")]);
        let to = apt.path().join("derived");
        write(&to, apt.path()).unwrap();
        assert!(
            fs::read_to_string(to.join("machine.list"))
                .unwrap()
                .contains("deb-src http://a.test/ bookworm main")
        );
    }

    #[test]
    fn a_machine_without_debian_12_gets_an_error() {
        let apt = tempfile::tempdir().unwrap();
        let error = write(&apt.path().join("derived"), apt.path()).unwrap_err().to_string();
        assert!(error.contains("Debian 12"), "{error}");
    }
}
