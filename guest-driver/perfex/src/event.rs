//! Event specifiers as they are written: numbers, raw codes, names.
//!
//! What is written is understood without the processor; [`crate::choices`] looks it up there.

use anyhow::{Context, Result, bail, ensure};
use libvperfctr::layout::MAX_COUNTERS;

use crate::number::{self, Base};

/// One event of the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Specifier {
    /// As written, for messages and reports.
    pub(crate) text: String,
    pub(crate) what: What,
    /// The counter it names, if it does.
    pub(crate) pmc: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// `evntsel[/escr]`: register values.
    Registers { evntsel: u32, escr: u32 },
    /// `rNNNN[:LEVELS]`: event, unit mask and the like; enable and levels are added.
    Raw { code: u64, levels: Levels },
    /// `NAME[:LEVELS]`
    Named { name: String, levels: Levels },
}

/// At which privilege levels to count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Levels {
    pub(crate) user: bool,
    pub(crate) kernel: bool,
}

impl Levels {
    pub(crate) const BOTH: Self = Self { user: true, kernel: true };

    /// `u`, `k`, or both in any order.
    fn parse(text: &str) -> Result<Self> {
        let mut levels = Self { user: false, kernel: false };
        for letter in text.chars() {
            let level = match letter {
                'u' => &mut levels.user,
                'k' => &mut levels.kernel,
                other => bail!("unknown modifier '{other}': there are u (user) and k (kernel)"),
            };
            ensure!(!*level, "modifier '{letter}' given twice");
            *level = true;
        }
        ensure!(levels.user || levels.kernel, "no modifier after the colon: write :u, :k or :uk");
        Ok(levels)
    }
}

/// All events of a command line; each argument may hold several, separated by commas.
pub(crate) fn parse_all(arguments: &[String], base: Base) -> Result<Vec<Specifier>> {
    let specifiers: Vec<&str> = arguments.iter().flat_map(|argument| argument.split(',')).collect();
    ensure!(
        specifiers.len() <= MAX_COUNTERS,
        "too many event specifiers: {}, and no processor has more than {MAX_COUNTERS} counters",
        specifiers.len()
    );
    specifiers.into_iter().map(|text| parse(text, base)).collect()
}

fn parse(text: &str, base: Base) -> Result<Specifier> {
    let specifier = |what, pmc| Specifier { text: text.to_owned(), what, pmc };
    // Without warnings: "branches" begins with a digit too.
    if registers(text, base.silent()).is_some() {
        let (evntsel, escr, pmc) = registers(text, base).context("reads the same twice")?;
        return Ok(specifier(What::Registers { evntsel, escr }, pmc));
    }
    symbolic(text, base).map(|(what, pmc)| specifier(what, pmc)).with_context(|| {
        format!(
            "invalid event specifier '{text}': write evntsel[/escr][@pmc], each a 32-bit number, or \
             NAME[:u|:k|:uk][@pmc], or rCODE[:u|:k|:uk][@pmc]"
        )
    })
}

/// `evntsel[/escr][@pmc]`
fn registers(text: &str, base: Base) -> Option<(u32, u32, Option<u32>)> {
    let (evntsel, rest) = number::leading(text, base)?;
    let (escr, rest) = match rest.strip_prefix('/') {
        Some(rest) => number::leading(rest, base)?,
        None => (0, rest),
    };
    let (pmc, rest) = match rest.strip_prefix('@') {
        Some(rest) => number::leading(rest, base).map(|(pmc, rest)| (Some(pmc), rest))?,
        None => (None, rest),
    };
    rest.is_empty().then_some((evntsel, escr, pmc))
}

/// `(NAME|rCODE)[:LEVELS][@pmc]`
fn symbolic(text: &str, base: Base) -> Result<(What, Option<u32>)> {
    let (text, pmc) = match text.split_once('@') {
        Some((text, pmc)) => (text, Some(whole_number(pmc, base)?)),
        None => (text, None),
    };
    let (name, levels) = match text.split_once(':') {
        Some((name, levels)) => (name, Levels::parse(levels)?),
        None => (text, Levels::BOTH),
    };
    if let Some(code) = name.strip_prefix('r').and_then(hexadecimal) {
        return Ok((What::Raw { code, levels }, pmc));
    }
    ensure!(hexadecimal(name).is_none(), "'{name}' is a number: its levels are bits of it");
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    ensure!(is_name, "'{name}' is neither a number nor a name");
    Ok((What::Named { name: name.to_owned(), levels }, pmc))
}

fn hexadecimal(digits: &str) -> Option<u64> {
    // from_str_radix would take a sign.
    let all = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    if all { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// A value that is one number and nothing else.
pub(crate) fn whole_number(text: &str, base: Base) -> Result<u32> {
    match number::leading(text, base) {
        Some((value, "")) => Ok(value),
        _ => bail!("invalid value '{text}': write a 32-bit number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Base = Base::Hexadecimal { warn: false };
    const USER: Levels = Levels { user: true, kernel: false };

    fn read(text: &str) -> (What, Option<u32>) {
        let specifier = parse(text, BASE).unwrap();
        assert_eq!(specifier.text, text);
        (specifier.what, specifier.pmc)
    }

    fn named(name: &str, levels: Levels) -> What {
        What::Named { name: name.to_owned(), levels }
    }

    #[test]
    fn numbers_have_up_to_three_parts() {
        let registers = |evntsel, escr| What::Registers { evntsel, escr };
        assert_eq!(
            read("0x00039000/0x04000204@0x8000000C"),
            (registers(0x39000, 0x0400_0204), Some(0x8000_000C))
        );
        assert_eq!(read("C0@1"), (registers(0xC0, 0), Some(1)));
        assert_eq!(read("C0/2"), (registers(0xC0, 2), None));
        assert_eq!(read("bad"), (registers(0xBAD, 0), None));
    }

    #[test]
    fn names_may_begin_with_digits_of_hexadecimal() {
        assert_eq!(read("branches"), (named("branches", Levels::BOTH), None));
        assert_eq!(read("branch-misses:u"), (named("branch-misses", USER), None));
        assert_eq!(read("cycles:ku@1"), (named("cycles", Levels::BOTH), Some(1)));
        let kernel = Levels { user: false, kernel: true };
        assert_eq!(read("RETIRED_OPS:k"), (named("RETIRED_OPS", kernel), None));
    }

    #[test]
    fn raw_codes_are_hexadecimal_whatever_the_base() {
        assert_eq!(read("r1c0:u"), (What::Raw { code: 0x1C0, levels: USER }, None));
        assert_eq!(read("r1000004E0@3"), (What::Raw { code: 0x1_0000_04E0, levels: Levels::BOTH }, Some(3)));
        assert_eq!(read("retired"), (named("retired", Levels::BOTH), None));
    }

    #[test]
    fn commas_separate() {
        let all = parse_all(&["cycles,C0@1".to_owned(), "r76".to_owned()], BASE).unwrap();
        assert_eq!(all.iter().map(|s| s.text.as_str()).collect::<Vec<_>>(), ["cycles", "C0@1", "r76"]);
    }

    #[test]
    fn what_is_not_an_event_is_named() {
        for text in [
            "",
            "C0/",
            "C0@",
            "C0@1/2",
            "C0 ",
            "C0@1@2",
            "1FFFFFFFF",
            "/1",
            "@1",
            "C0:u",
            "cycles:",
            "cycles:p",
            "cycles:uu",
            "cycles:u:k",
            "cycles@",
            "cycles@x",
            ":u",
            "a b",
            "rr!",
            "cycles/2",
            "-1",
        ] {
            let error = format!("{:#}", parse(text, BASE).unwrap_err());
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
        assert!(parse_all(&["cycles,".to_owned()], BASE).is_err());
        let error = format!("{:#}", parse("cycles:p", BASE).unwrap_err());
        assert!(error.contains("unknown modifier 'p'"), "{error}");
    }

    #[test]
    fn the_19th_event_is_refused() {
        let events = vec!["C0".to_owned(); 19];
        assert_eq!(parse_all(&events[..18], BASE).unwrap().len(), 18);
        assert!(parse_all(&events, BASE).unwrap_err().to_string().contains("too many"));
    }
}
