//! `-i`: what the driver says of itself and of the processor.

use libvperfctr::{CpuMask, Driver, cpu_name};

/// The classic listing.
pub(crate) fn describe(driver: &Driver) -> String {
    let info = &driver.info;
    let features: Vec<_> = driver.features().collect();
    // Perfctr had none of these; their line appears where there is something to say.
    let extensions = match info.extensions {
        0 => String::new(),
        bits => format!("extensions\t\t{bits:#x} ({})\n", driver.extensions().collect::<Vec<_>>().join(",")),
    };
    let (programmable, fixed) = driver.counters();
    let unspecified = if info.tsc_to_cpu_mult == 0 { " (unspecified, assume 1)" } else { "" };
    format!(
        "PerfCtr Info:\n\
         abi_version\t\t0x{:08X}\n\
         driver_version\t\t{}\n\
         cpu_type\t\t{} ({})\n\
         cpu_features\t\t{:#x} ({})\n\
         cpu_khz\t\t\t{}\n\
         tsc_to_cpu_mult\t\t{}{unspecified}\n\
         cpu_nrctrs\t\t{}\n\
         cpus\t\t\t{}\n\
         cpus_forbidden\t\t{}\n\
         {extensions}",
        info.abi_version,
        driver.version(),
        info.cpu_type,
        cpu_name(info.cpu_type),
        info.cpu_features,
        features.join(","),
        info.cpu_khz,
        info.tsc_to_cpu_mult,
        programmable + fixed,
        numbers(&driver.cpus),
        numbers(&driver.forbidden),
    )
}

fn numbers(mask: &CpuMask) -> String {
    let numbers: Vec<_> = mask.iter().map(|n| n.to_string()).collect();
    format!("[{}], total: {}", numbers.join(","), numbers.len())
}

#[cfg(test)]
pub(crate) mod tests {
    use libvperfctr::layout::{ABI_VERSION, Info, cpu_type, feature};
    use zerocopy::FromZeros;

    use super::*;

    /// A machine as the guest driver would describe it.
    pub(crate) fn machine(cpu_type: u32) -> Driver {
        let mut info = Info::new_zeroed();
        info.abi_version = ABI_VERSION;
        info.driver_version[..5].copy_from_slice(b"2.7.3");
        info.cpu_type = cpu_type;
        info.cpu_features = feature::RDTSC | feature::PCINT;
        info.cpu_khz = 2_400_000;
        info.tsc_to_cpu_mult = 1;
        Driver { info, cpus: CpuMask::from(vec![0b1011]), forbidden: CpuMask::default() }
    }

    #[test]
    fn every_field_has_its_line() {
        assert_eq!(
            describe(&machine(cpu_type::K8)),
            "PerfCtr Info:\n\
             abi_version\t\t0x06000500\n\
             driver_version\t\t2.7.3\n\
             cpu_type\t\t13 (AMD K8)\n\
             cpu_features\t\t0x6 (rdtsc,pcint)\n\
             cpu_khz\t\t\t2400000\n\
             tsc_to_cpu_mult\t\t1\n\
             cpu_nrctrs\t\t4\n\
             cpus\t\t\t[0,1,3], total: 3\n\
             cpus_forbidden\t\t[], total: 0\n"
        );
    }

    #[test]
    fn extensions_are_named_where_there_are_some() {
        let mut driver = machine(cpu_type::K8);
        driver.info.extensions = 9;
        assert!(describe(&driver).ends_with("total: 0\nextensions\t\t0x9 (seq,other-threads)\n"));
    }
}
