//! One event of the tables.

/// An event of any processor but the P4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    /// Event number: bits 0 to 7 of the event select, AMD family 10h also 32 to 35, VIA C3 also 8.
    pub(crate) code: u16,
    /// Unit mask to begin with: bits 8 to 15.
    pub(crate) unit_mask: u8,
    /// Bit n: programmable counter n can count it.
    pub(crate) counters: u32,
    /// The fixed counter that counts it.
    pub(crate) fixed: Option<u32>,
    pub(crate) description: &'static str,
}

impl Event {
    pub(super) const fn new(name: &'static str, code: u16, unit_mask: u8, description: &'static str) -> Self {
        Self { name, code, unit_mask, counters: u32::MAX, fixed: None, description }
    }

    /// Only on these counters.
    pub(super) const fn on(self, counters: u32) -> Self {
        Self { counters, ..self }
    }

    /// Also on this fixed counter.
    pub(super) const fn or_fixed(self, number: u32) -> Self {
        Self { fixed: Some(number), ..self }
    }
}
