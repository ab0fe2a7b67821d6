//! What one counter is set to count.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What one counter of the guest is set to count, as the guest's registers say it. Both interfaces speak it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Select {
    /// Event select: EVNTSEL of P6-like processors, the counter's half of CESR on P5-like ones, CCCR on P4.
    /// For a fixed counter its four bits of IA32_FIXED_CTR_CTRL (Intel SDM volume 3B, 20.2.2).
    pub evntsel: u64,
    /// P4: the ESCR that goes with it; 0 on others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escr: u32,
    /// Number of the counter, where the meaning of an event depends on it: P5-like processors, and P4, where it
    /// says with the ESCR SELECT field which ESCR it is. `None` on others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<u8>,
    /// Number of the fixed counter, for one of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<u8>,
    /// P4: PEBS_ENABLE tags micro-operations that are replayed, so that counters tell tagged instructions from others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replay: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(escr: &u32) -> bool {
    *escr == 0
}

impl Select {
    /// A general counter's.
    pub const fn general(evntsel: u64) -> Self {
        Self { evntsel, escr: 0, counter: None, fixed: None, replay: false }
    }

    /// A fixed counter's; `control` are its four bits.
    pub const fn fixed(number: u8, control: u64) -> Self {
        Self { evntsel: control, escr: 0, counter: None, fixed: Some(number), replay: false }
    }
}

/// As perfex writes events: `0x004100C0`, `0x00039000/0x12000204@12`, and `fixed 1 0x3`.
impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.fixed, self.escr) {
            (Some(number), _) => write!(f, "fixed {number} {:#x}", self.evntsel),
            (None, 0) => write!(f, "0x{:08X}", self.evntsel),
            (None, escr) => write!(f, "0x{:08X}/0x{escr:08X}", self.evntsel),
        }?;
        match self.counter {
            Some(counter) => write!(f, "@{counter}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_perfex_and_round_trips() {
        let all = [
            (Select::general(0x4100C0), "0x004100C0", r#"{"evntsel":4260032}"#),
            (Select { escr: 0x1200_0204, ..Select::general(0x39000) }, "0x00039000/0x12000204", ""),
            (
                Select { counter: Some(1), ..Select::general(0xD6) },
                "0x000000D6@1",
                r#"{"evntsel":214,"counter":1}"#,
            ),
            (Select::fixed(1, 3), "fixed 1 0x3", r#"{"evntsel":3,"fixed":1}"#),
        ];
        for (select, text, json) in all {
            assert_eq!(select.to_string(), text);
            let written = serde_json::to_string(&select).unwrap();
            assert!(json.is_empty() || written == json, "{written}");
            assert_eq!(serde_json::from_str::<Select>(&written).unwrap(), select);
        }
    }
}
