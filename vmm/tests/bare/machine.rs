//! The machine itself: how it stops, what is absent, several vCPUs.

use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use perfvisor::devices::stop::Stop;
use vpmu::Model;
use vpmu::perf::PerfPmu;

use crate::guest::{Given, Step, image};
use crate::running::{machine, machine_with_host, run, wait};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("machine_power_off_ends_it", power_off_ends_it),
        Trial::test(
            "machine_reset_by_the_acpi_register_and_by_the_keyboard_controller",
            reset_by_the_acpi_register_and_by_the_keyboard_controller,
        ),
        Trial::test("machine_absent_memory_and_ports_are_harmless", absent_memory_and_ports_are_harmless),
        Trial::test("machine_pmu_registers_of_other_families_fault", pmu_registers_of_other_families_fault),
        Trial::test(
            "machine_eight_vcpus_answer_a_dump_while_seven_wait_and_one_spins",
            eight_vcpus_answer_a_dump_while_seven_wait_and_one_spins,
        ),
        Trial::test("machine_one_after_another_leaves_nothing", one_after_another_leaves_nothing),
        Trial::test("machine_a_triple_fault_is_a_reset", a_triple_fault_is_a_reset),
        Trial::test("machine_ended_before_it_ran", ended_before_it_ran),
        Trial::test(
            "machine_a_dump_asked_for_before_the_vcpu_was_ready_is_answered",
            a_dump_asked_for_before_the_vcpu_was_ready_is_answered,
        ),
        Trial::test("machine_a_vcpu_whose_thread_dies_stops_it", a_vcpu_whose_thread_dies_stops_it),
        Trial::test("machine_stop_is_reported_once", stop_is_reported_once),
    ]
}

fn power_off_ends_it() -> Result<(), Failed> {
    let ran = run(Model::Generic, 1, &[]);
    assert_eq!(ran.stop, Stop::PowerOff);
    assert_eq!(ran.dumps.len(), 1);
    Ok(())
}

fn reset_by_the_acpi_register_and_by_the_keyboard_controller() -> Result<(), Failed> {
    for step in [Step::Out(0xCF9, 6), Step::Out(0x64, 0xFE)] {
        assert_eq!(run(Model::Generic, 1, &[step]).stop, Stop::Reset);
    }
    Ok(())
}

fn absent_memory_and_ports_are_harmless() -> Result<(), Failed> {
    let ran = run(
        Model::Generic,
        1,
        &[
            Step::Load(0xC000_0000),
            Step::Store(0xC000_0000, 1),
            Step::Load32(0xD000_0000),
            Step::Out(0x80, 1),
            Step::Spin(1000),
        ],
    );
    assert_eq!(ran.stop, Stop::PowerOff);
    assert_eq!(ran.given.len(), 5);
    assert_eq!(ran.given[0], Given::Value(0));
    // The session console is there: virtio-mmio's magic, "virt".
    assert_eq!(ran.given[2], Given::Value(0x7472_6976));
    Ok(())
}

fn pmu_registers_of_other_families_fault() -> Result<(), Failed> {
    let registers = [0xC1, 0x186, 0x38F, 0x309, 0x360, 0x345, 0xC001_0200, 0xC000_0301];
    let script: Vec<Step> =
        registers.iter().flat_map(|msr| [Step::ReadMsr(*msr), Step::WriteMsr(*msr, 0)]).collect();
    let ran = run(Model::K8, 1, &script);
    assert_eq!(ran.given, vec![Given::Fault; script.len()]);
    Ok(())
}

fn eight_vcpus_answer_a_dump_while_seven_wait_and_one_spins() -> Result<(), Failed> {
    let machine = machine(Model::K8, 8, &[Step::Spin(u64::MAX)]);
    let remotes = machine.remotes();
    machine.run();
    for _ in 0..20 {
        for (index, remote) in remotes.iter().enumerate() {
            let dump = remote.dump().recv_timeout(Duration::from_secs(5))?;
            assert_eq!(usize::from(dump.index), index);
        }
    }
    assert_eq!(machine.stop(), None);
    assert_eq!(machine.end().len(), 8);
    Ok(())
}

fn one_after_another_leaves_nothing() -> Result<(), Failed> {
    let descriptors = || std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(0);
    assert_eq!(run(Model::Generic, 2, &[]).stop, Stop::PowerOff);
    // Other trials run beside this one: leaking only one descriptor a machine would still show.
    let before = descriptors();
    for _ in 0..20 {
        assert_eq!(run(Model::Generic, 2, &[]).stop, Stop::PowerOff);
    }
    let after = descriptors();
    assert!(after < before + 200, "{before} descriptors before, {after} after");
    Ok(())
}

fn a_triple_fault_is_a_reset() -> Result<(), Failed> {
    let mut image = image(&[]);
    // ud2 at the entry, with no IDT.
    image[1024 + 0x200..][..2].copy_from_slice(&[0x0F, 0x0B]);
    let stop = crate::running::run_image(&image);
    assert_eq!(stop, Stop::Reset);
    Ok(())
}

fn ended_before_it_ran() -> Result<(), Failed> {
    let machine = machine(Model::K8, 3, &[]);
    assert_eq!(machine.end().len(), 3);
    Ok(())
}

fn a_dump_asked_for_before_the_vcpu_was_ready_is_answered() -> Result<(), Failed> {
    let slow = |_| {
        std::thread::sleep(Duration::from_millis(300));
        PerfPmu::new()
    };
    let machine = machine_with_host(&[Step::Spin(u64::MAX)], slow);
    machine.run();
    machine.remotes()[0].dump().recv_timeout(Duration::from_secs(3))?;
    Ok(())
}

fn a_vcpu_whose_thread_dies_stops_it() -> Result<(), Failed> {
    let machine = machine_with_host(&[], |_| panic!("a bug, made for this test"));
    machine.run();
    let Stop::Failed(reason) = wait(&machine) else { return Err("another stop".into()) };
    assert!(reason.contains("vCPU 0"), "{reason}");
    assert!(machine.end().is_empty());
    Ok(())
}

fn stop_is_reported_once() -> Result<(), Failed> {
    let machine = machine(Model::K8, 1, &[]);
    machine.run();
    assert_eq!(wait(&machine), Stop::PowerOff);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(machine.stop(), None);
    Ok(())
}
