//! Event specifiers: `evntsel[/escr][@pmc]`.

use anyhow::{Context, Result, ensure};
use libvperfctr::{Counter, layout::MAX_COUNTERS};

use crate::number::{self, Base};

/// All events of a command line. One without `@pmc` gets the counter of its own position.
pub(crate) fn parse_all(specifiers: &[String], base: Base) -> Result<Vec<Counter>> {
    ensure!(
        specifiers.len() <= MAX_COUNTERS,
        "too many event specifiers: {}, and no processor has more than {MAX_COUNTERS} counters",
        specifiers.len()
    );
    specifiers.iter().zip(0..).map(|(text, position)| parse(text, position, base)).collect()
}

fn parse(specifier: &str, position: u32, base: Base) -> Result<Counter> {
    let parsed = || {
        let (evntsel, rest) = number::leading(specifier, base)?;
        let (escr, rest) = match rest.strip_prefix('/') {
            Some(rest) => number::leading(rest, base)?,
            None => (0, rest),
        };
        let (pmc, rest) = match rest.strip_prefix('@') {
            Some(rest) => number::leading(rest, base)?,
            None => (position, rest),
        };
        rest.is_empty().then_some(Counter { evntsel, escr, pmc })
    };
    parsed().with_context(|| {
        format!("invalid event specifier '{specifier}': write evntsel[/escr][@pmc], each a 32-bit number")
    })
}

/// A value that is one number and nothing else.
pub(crate) fn whole_number(text: &str, base: Base) -> Result<u32> {
    match number::leading(text, base) {
        Some((value, "")) => Ok(value),
        _ => anyhow::bail!("invalid value '{text}': write a 32-bit number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Base = Base::Hexadecimal { warn: false };

    #[test]
    fn all_three_parts() {
        let p4 = parse("0x00039000/0x04000204@0x8000000C", 5, BASE).unwrap();
        assert_eq!(p4, Counter { evntsel: 0x39000, escr: 0x0400_0204, pmc: 0x8000_000C });
        assert_eq!(parse("C0@1", 5, BASE).unwrap(), Counter { evntsel: 0xC0, escr: 0, pmc: 1 });
        assert_eq!(parse("C0/2", 5, BASE).unwrap(), Counter { evntsel: 0xC0, escr: 2, pmc: 5 });
    }

    #[test]
    fn what_is_not_an_event_is_named() {
        for text in ["", "x", "C0/", "C0@", "C0@1/2", "C0 ", "C0@1@2", "1FFFFFFFF", "/1", "@1"] {
            let error = parse(text, 0, BASE).unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }

    #[test]
    fn the_19th_event_is_refused() {
        let events = vec!["C0".to_owned(); 19];
        assert_eq!(parse_all(&events[..18], BASE).unwrap()[17].pmc, 17);
        assert!(parse_all(&events, BASE).unwrap_err().to_string().contains("too many"));
    }
}
