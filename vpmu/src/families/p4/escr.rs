//! The ESCRs: which exist, and which belongs to a counter. Source: SDM volume 3B, table "Performance Counter MSRs and
//! Associated CCCR and ESCR MSRs (Processors Based on Intel NetBurst Microarchitecture)".
//!
//! Counters form groups of four and six that share a unit. Of each group the first half (0, 1; 4, 5; 8, 9; 12, 13,
//! 16) has the ESCRs with even numbers (0, 2, 4 in their names), the second half the next ones.

/// Bit 31 of an ESCR.
pub(super) const RESERVED: u32 = 1 << 31;

/// ESCR by ESCR SELECT; 0 where there is none.
type Selected = [u32; 8];

/// IQ_ESCR0, RAT, SSU, ALF, CRU_ESCR0, 2, 4 for counters 12, 13, 16. SSU has no second ESCR.
const IQ: Selected = [0x3BA, 0x3CA, 0x3BC, 0x3BE, 0x3B8, 0x3CC, 0x3E0, 0];
/// BPU, IS, MOB, ITLB, PMH, IX, FSB, BSU for counters 0 and 1.
const BPU: Selected = [0x3B2, 0x3B4, 0x3AA, 0x3B6, 0x3AC, 0x3C8, 0x3A2, 0x3A0];
/// MS, TC, TBPU for counters 4 and 5.
const MS: Selected = [0x3C0, 0x3C4, 0x3C2, 0, 0, 0, 0, 0];
/// FLAME, FIRM, SAAT, U2L, DAC for counters 8 and 9.
const FLAME: Selected = [0x3A6, 0x3A4, 0x3AE, 0x3B0, 0, 0x3A8, 0, 0];

/// The ESCRs of the second half of a group.
const fn second(first: Selected) -> Selected {
    let mut selected = first;
    let mut i = 0;
    while i < selected.len() {
        if selected[i] != 0 && selected[i] != 0x3BE {
            selected[i] += 1;
        } else {
            selected[i] = 0;
        }
        i += 1;
    }
    selected
}

/// For each counter, on models 0 to 2.
pub(super) const BY_COUNTER: [Selected; 18] = [
    BPU,
    BPU,
    second(BPU),
    second(BPU),
    MS,
    MS,
    second(MS),
    second(MS),
    FLAME,
    FLAME,
    second(FLAME),
    second(FLAME),
    IQ,
    IQ,
    second(IQ),
    second(IQ),
    IQ,
    second(IQ),
];

/// The same on model 3 and later, which have no IQ_ESCR.
pub(super) const BY_COUNTER_M3: [Selected; 18] = {
    let mut table = BY_COUNTER;
    let mut i = 12;
    while i < table.len() {
        table[i][0] = 0;
        i += 1;
    }
    table
};

/// Every ESCR of models 0 to 2: 3A0 to 3BE, 3C0 to 3C5, 3C8 to 3CD, 3E0 and 3E1.
pub(super) const ALL: [u32; 45] = all();
/// The same without 3BA and 3BB.
pub(super) const ALL_M3: [u32; 43] = {
    let mut rest = [0; 43];
    let (mut i, mut at) = (0, 0);
    while i < ALL.len() {
        if ALL[i] != 0x3BA && ALL[i] != 0x3BB {
            rest[at] = ALL[i];
            at += 1;
        }
        i += 1;
    }
    rest
};

const fn all() -> [u32; 45] {
    let mut escrs = [0; 45];
    let (mut escr, mut at) = (0x3A0, 0);
    while escr <= 0x3E1 {
        if matches!(escr, 0x3A0..=0x3BE | 0x3C0..=0x3C5 | 0x3C8..=0x3CD | 0x3E0 | 0x3E1) {
            escrs[at] = escr;
            at += 1;
        }
        escr += 1;
    }
    escrs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the SDM's table, by counter and ESCR SELECT.
    #[test]
    fn as_in_the_manual() {
        for (counter, select, escr) in [
            (0, 7, 0x3A0),
            (1, 6, 0x3A2),
            (0, 2, 0x3AA),
            (3, 4, 0x3AD),
            (2, 0, 0x3B3),
            (3, 1, 0x3B5),
            (2, 3, 0x3B7),
            (2, 5, 0x3C9),
            (2, 7, 0x3A1),
            (4, 0, 0x3C0),
            (5, 2, 0x3C2),
            (6, 1, 0x3C5),
            (8, 1, 0x3A4),
            (9, 0, 0x3A6),
            (8, 5, 0x3A8),
            (10, 2, 0x3AF),
            (11, 3, 0x3B1),
            (12, 4, 0x3B8),
            (13, 5, 0x3CC),
            (16, 6, 0x3E0),
            (12, 0, 0x3BA),
            (13, 2, 0x3BC),
            (16, 3, 0x3BE),
            (12, 1, 0x3CA),
            (14, 4, 0x3B9),
            (15, 5, 0x3CD),
            (17, 6, 0x3E1),
            (14, 0, 0x3BB),
            (15, 2, 0x3BD),
            (17, 1, 0x3CB),
            (17, 3, 0),
            (4, 3, 0),
            (8, 4, 0),
            (12, 7, 0),
        ] {
            assert_eq!(BY_COUNTER[counter][select], escr, "counter {counter}, select {select}");
        }
    }

    #[test]
    fn every_escr_belongs_to_some_counter_and_the_other_way_round() {
        for (all, table) in [(&ALL[..], BY_COUNTER), (&ALL_M3, BY_COUNTER_M3)] {
            let mut used: Vec<_> = table.as_flattened().iter().copied().filter(|escr| *escr != 0).collect();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used, all);
        }
    }
}
