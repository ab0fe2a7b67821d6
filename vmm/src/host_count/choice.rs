//! What to count, and where: the words of `dump --host`.

use std::fmt;
use std::str::FromStr;

use vpmu::HostFamily;

const USR: u64 = 1 << 16;
const OS: u64 = 1 << 17;

/// Names, for short, with the numbers of all AMD processors (AMD64 Architecture Programmer's Manual volume 2, 13.2, and the
/// families' BKDGs and PPRs) and of Intel's architectural events (SDM volume 3B, 20.2.1.2), where there are such. The
/// module counts nowhere else.
const NAMES: [(&str, u64, Option<u64>); 5] = [
    ("instructions", 0xC0, Some(0xC0)),
    ("cycles", 0x76, Some(0x3C)),
    ("branches", 0xC2, Some(0xC4)),
    ("mispredicted-branches", 0xC3, Some(0xC5)),
    ("taken-branches", 0xC4, None),
];

/// The number of a named event.
fn code(name: &str, family: HostFamily) -> Option<u64> {
    let (_, amd, intel) = NAMES.iter().find(|(known, ..)| *known == name)?;
    if family == HostFamily::Intel { *intel } else { Some(*amd) }
}

/// An event and the modes it is counted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventChoice {
    /// As it was asked for.
    pub name: String,
    /// The processor's event select, with USR and OS.
    pub evntsel: u64,
}

impl EventChoice {
    fn of(text: &str, family: HostFamily) -> Result<Self, NotAnEvent> {
        let (event, modes) = match text.split_once(':') {
            None => (text, USR | OS),
            Some((event, "u")) => (event, USR),
            Some((event, "k")) => (event, OS),
            Some(_) => return Err(NotAnEvent),
        };
        let code = match event.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| NotAnEvent)?,
            None => code(event, family).ok_or(NotAnEvent)?,
        };
        if code == 0 || code & (USR | OS) != 0 {
            return Err(NotAnEvent);
        }
        Ok(Self { name: text.to_owned(), evntsel: code | modes })
    }

    /// What is counted if nothing is asked for.
    pub fn usual() -> Vec<Self> {
        NAMES[..3].iter().filter_map(|(name, ..)| name.parse().ok()).collect()
    }
}

impl fmt::Display for EventChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// Not an event.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an event is one of {} (the last on AMD's processors alone), or an event select in hexadecimal (0x..) without the modes; with :u user mode alone, with \
     :k kernel mode alone", NAMES.map(|(name, ..)| name).join(", ")
)]
pub struct NotAnEvent;

impl FromStr for EventChoice {
    type Err = NotAnEvent;

    fn from_str(text: &str) -> Result<Self, NotAnEvent> {
        Self::of(text, HostFamily::detect())
    }
}

/// Numbers of processors, in order and each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<u32>);

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

/// Not a list of processors.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a list of CPUs is like 0,2-5")]
pub struct NotAList;

impl FromStr for CpuList {
    type Err = NotAList;

    fn from_str(text: &str) -> Result<Self, NotAList> {
        let number = |text: &str| text.parse().ok().filter(|&cpu: &u32| cpu < 1 << 16).ok_or(NotAList);
        let mut cpus = Vec::new();
        for part in text.trim().split(',') {
            match part.split_once('-') {
                None => cpus.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(NotAList);
                    }
                    cpus.extend(first..=last);
                }
            }
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Self(cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events() {
        let of = |text| EventChoice::of(text, HostFamily::Zen).map(|event| event.evntsel);
        assert_eq!(of("instructions"), Ok(0x300C0));
        assert_eq!(of("branches:u"), Ok(0x100C2));
        assert_eq!(of("0x1000000C2:k"), Ok(0x1_0002_00C2));
        for wrong in ["", "nonsense", "instructions:", "instructions:uk", "0x", "0x0", "0x100C0", "0xG", ":u"]
        {
            assert_eq!(of(wrong), Err(NotAnEvent), "{wrong}");
        }
        let intels = |text| EventChoice::of(text, HostFamily::Intel).map(|event| event.evntsel);
        assert_eq!(intels("branches:u"), Ok(0x100C4));
        assert_eq!(intels("cycles"), Ok(0x3003C));
        assert_eq!(intels("taken-branches"), Err(NotAnEvent));
        assert!(EventChoice::usual().len() == 3, "each family has those");
        assert!(NotAnEvent.to_string().contains("instructions, cycles"));
    }

    #[test]
    fn lists() {
        let of = |text: &str| text.parse().map(|CpuList(cpus)| cpus);
        assert_eq!(of("0"), Ok(vec![0]));
        assert_eq!(of("3,0-1,1\n"), Ok(vec![0, 1, 3]));
        for wrong in ["", ",", "1-", "2-1", "-1", "a", "0,,1", "70000"] {
            assert_eq!(of(wrong), Err(NotAList), "{wrong}");
        }
    }
}
