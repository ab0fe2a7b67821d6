//! Sets of processors as the driver writes them.

/// `struct perfctr_cpu_mask` without its length word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuMask(Vec<u32>);

impl CpuMask {
    /// The processors' numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bit = |word: u32, n: u32| (word >> n) & 1 == 1;
        self.0
            .iter()
            .zip(0u32..)
            .flat_map(move |(&word, i)| (0..32).filter(move |&n| bit(word, n)).map(move |n| 32 * i + n))
    }
}

impl From<Vec<u32>> for CpuMask {
    fn from(words: Vec<u32>) -> Self {
        Self(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_on_from_word_to_word() {
        let mask = CpuMask(vec![0x8000_0001, 0, 0b10]);
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 31, 65]);
        assert_eq!(CpuMask::default().iter().count(), 0);
    }
}
