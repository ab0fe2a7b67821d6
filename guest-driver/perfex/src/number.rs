//! Numbers as C's `strtoul` reads them, for the classic perfex let it decide.

/// How a number without a prefix is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Base {
    /// `-d`: 0x is hexadecimal, a leading 0 octal, everything else decimal.
    AsWritten,
    /// `-x`, and the default, which warns where [`Base::AsWritten`] would read another value.
    Hexadecimal { warn: bool },
}

impl Base {
    /// The same without a warning.
    pub(crate) fn silent(self) -> Self {
        match self {
            Self::AsWritten => self,
            Self::Hexadecimal { .. } => Self::Hexadecimal { warn: false },
        }
    }
}

/// The number at the beginning of `text`, and what follows it. `None` if there is none or it exceeds 32 bits.
pub(crate) fn leading(text: &str, base: Base) -> Option<(u32, &str)> {
    let (value, rest) = match base {
        Base::AsWritten => as_written(text)?,
        Base::Hexadecimal { .. } => {
            digits(text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text), 16)?
        }
    };
    if base == (Base::Hexadecimal { warn: true }) && as_written(text).map(|(other, _)| other) != Some(value) {
        let number = &text[..text.len() - rest.len()];
        eprintln!(
            "perfex: warning: '{number}' is read as hexadecimal; write 0x{number}, or use -d for decimal numbers"
        );
    }
    Some((value, rest))
}

fn as_written(text: &str) -> Option<(u32, &str)> {
    if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        digits(hex, 16)
    } else if text.starts_with('0') {
        digits(text, 8)
    } else {
        digits(text, 10)
    }
}

fn digits(text: &str, radix: u32) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_digit(radix)).unwrap_or(text.len());
    let value = u32::from_str_radix(&text[..end], radix).ok()?;
    Some((value, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases() {
        let quiet = Base::Hexadecimal { warn: false };
        for (text, base, expected) in [
            ("0x10", quiet, Some((0x10, ""))),
            ("10", quiet, Some((0x10, ""))),
            ("10", Base::AsWritten, Some((10, ""))),
            ("010", Base::AsWritten, Some((8, ""))),
            ("0", Base::AsWritten, Some((0, ""))),
            ("0XfF@1", Base::AsWritten, Some((255, "@1"))),
            ("4100C0/2", quiet, Some((0x41_00C0, "/2"))),
            ("ffffffff", quiet, Some((u32::MAX, ""))),
            ("100000000", quiet, None),
            ("", quiet, None),
            ("0x", quiet, None),
            ("@1", quiet, None),
            ("-1", Base::AsWritten, None),
            ("+1", Base::AsWritten, None),
        ] {
            assert_eq!(leading(text, base), expected, "{text} {base:?}");
        }
    }
}
