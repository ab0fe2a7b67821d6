//! `perfvisor doctor`: what this host can do, what is missing, and the remedy for each.

mod counters;
mod finding;

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use images::layout::Layout;
use kvm_ioctls::{Cap, Kvm};

use crate::confinement;
use crate::host::rdpmc_probe::Rdpmc;
use crate::host::{self, ring0};
use crate::say::print;
use finding::{Finding, Verdict, finding};

/// Print the report. The exit status is 0 when guests with counters can run on this host itself.
pub fn doctor() -> Result<ExitCode> {
    let mut findings = kvm();
    findings.extend(counters::counters());
    findings.extend(confinement());
    findings.extend(images());
    // Writing to a String cannot fail.
    let mut out = String::new();
    for finding in &findings {
        let mark = match finding.verdict {
            Verdict::Good => "ok     ",
            Verdict::Note => "note   ",
            Verdict::Missing => "MISSING",
        };
        let _ = writeln!(out, "{mark}  {:<18} {}", finding.subject, finding.what);
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(out, "         {:<18} -> {remedy}", "");
        }
    }
    let able = findings.iter().all(|f| f.verdict != Verdict::Missing);
    out += if able {
        "\nGuests with counters run on this host.\n"
    } else {
        "\nGuests with counters do not run on this host itself; 'perfvisor run' uses the lab machine.\n"
    };
    print(&out)?;
    Ok(if able { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn kvm() -> Vec<Finding> {
    let kvm = match Kvm::new() {
        Ok(kvm) => kvm,
        Err(e) => {
            let remedy = match e.errno() {
                libc::EACCES | libc::EPERM => {
                    "join the group that owns /dev/kvm: sudo usermod -aG kvm $USER, then log in again"
                }
                _ => {
                    "enable virtualisation in the firmware and load the module: sudo modprobe kvm-amd, or kvm-intel"
                }
            };
            return vec![finding(Verdict::Missing, "KVM", format!("/dev/kvm: {e}")).remedy(remedy)];
        }
    };
    let mut findings = vec![finding(
        Verdict::Good,
        "KVM",
        format!("API version {}, up to {} vCPUs", kvm.get_api_version(), kvm.get_max_vcpus()),
    )];
    let needed = [
        (Cap::Irqchip, "in-kernel irqchip"),
        (Cap::Irqfd, "irqfd"),
        (Cap::Ioeventfd, "ioeventfd"),
        (Cap::ImmediateExit, "immediate exit"),
        (Cap::X86UserSpaceMsr, "MSR exits"),
        (Cap::X86MsrFilter, "MSR filter"),
    ];
    let absent: Vec<&str> =
        needed.iter().filter(|(cap, _)| !kvm.check_extension(*cap)).map(|(_, name)| *name).collect();
    findings.push(if absent.is_empty() {
        finding(Verdict::Good, "KVM capabilities", needed.map(|(_, name)| name).join(", "))
    } else {
        finding(Verdict::Missing, "KVM capabilities", format!("without {}", absent.join(", ")))
            .remedy("use a host kernel of Linux 5.10 or later")
    });
    let can_disable = kvm.check_extension_raw(u64::from(kvm_bindings::KVM_CAP_PMU_CAPABILITY)) > 0;
    findings.push(if can_disable {
        finding(Verdict::Good, "KVM's own vPMU", "can be switched off for a guest")
    } else {
        finding(Verdict::Note, "KVM's own vPMU", "cannot be switched off for one guest")
            .remedy("use a host kernel of Linux 5.18 or later")
    });
    findings.push(rdpmc(&kvm));
    findings.push(source_kvm(&kvm));
    findings.push(guest_kernel_code(&kvm));
    findings
}

fn guest_kernel_code(kvm: &Kvm) -> Finding {
    const SUBJECT: &str = "guest kernel code";
    match ring0::speed(kvm, u64::MAX) {
        Ok(speed) if speed >= host::SLOWEST => finding(
            Verdict::Good,
            SUBJECT,
            format!("{:.0} million instructions a second", speed as f64 / 1e6),
        ),
        Ok(speed) => finding(
            Verdict::Missing,
            SUBJECT,
            format!(
                "{:.1} million instructions a second: this KVM emulates ring 0, Linux does not boot on it",
                speed as f64 / 1e6
            ),
        )
        .remedy("run on a machine whose KVM is not itself emulated"),
        Err(e) => finding(Verdict::Missing, SUBJECT, format!("a small test guest did not run: {e}")),
    }
}

/// An error of the probe says the remedy itself.
fn source_kvm(kvm: &Kvm) -> Finding {
    const SUBJECT: &str = "source kvm";
    match host::kvm_vpmu::probe(kvm) {
        Ok(pmu) => finding(
            Verdict::Good,
            SUBJECT,
            format!(
                "KVM's own vPMU counts ({}, {} counters); --source kvm gives it to a guest",
                pmu.name, pmu.counters
            ),
        ),
        Err(e) => finding(Verdict::Note, SUBJECT, format!("{e}")),
    }
}

fn rdpmc(kvm: &Kvm) -> Finding {
    const SUBJECT: &str = "RDPMC in guests";
    let wrong = |reads: &str| {
        let what = format!("reads {reads}, a wrong number: 'perfvisor run' needs --pmu-registers off");
        finding(Verdict::Note, SUBJECT, what).remedy(
            "--pmu-registers off leaves the paravirtual interface, which never needs RDPMC; or use a host kernel on which RDPMC \
             faults, such as Linux 6.12",
        )
    };
    match host::rdpmc_probe::probe(kvm) {
        Ok(Rdpmc::Faults) => finding(
            Verdict::Good,
            SUBJECT,
            "faults, as it should: nobody reads a wrong number, and the guest driver emulates it",
        ),
        Ok(Rdpmc::SilentZero) => wrong("0"),
        Ok(Rdpmc::Counts(_)) => wrong("KVM's own counters"),
        Err(e) => finding(Verdict::Note, SUBJECT, format!("a small test guest did not run: {e}"))
            .remedy("run with --pmu-registers off: the paravirtual interface needs no RDPMC"),
    }
}

/// What holds a machine that somebody has broken into.
fn confinement() -> Vec<Finding> {
    let (filters, landlock) = confinement::of_this_kernel();
    let seccomp = if filters {
        finding(Verdict::Good, "seccomp", "each thread of a machine is limited to the system calls it needs")
    } else {
        finding(Verdict::Missing, "seccomp", "this kernel has no filters, so 'perfvisor run' refuses")
            .remedy("use a kernel with CONFIG_SECCOMP_FILTER; or run --no-confinement")
    };
    let landlock = match landlock {
        Some(version) => {
            finding(Verdict::Good, "Landlock", format!("version {version}: a running machine opens no files"))
        }
        None => finding(
            Verdict::Note,
            "Landlock",
            "not available: a machine is confined by seccomp filters alone",
        )
        .remedy("use a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in its parameter lsm="),
    };
    vec![seccomp, landlock]
}

fn images() -> Vec<Finding> {
    let layout = match Layout::open() {
        Ok(layout) => layout,
        Err(e) => return vec![finding(Verdict::Missing, "images", format!("{e:#}"))],
    };
    let mut findings: Vec<Finding> = Layout::series()
        .map(|series| match layout.kernel(series) {
            Some(image) => finding(Verdict::Good, "guest kernel", format!("{series}: {}", image.release)),
            None => finding(Verdict::Missing, "guest kernel", format!("{series}: not built"))
                .remedy(layout.remedy()),
        })
        .collect();
    findings.push(match layout.lab() {
        Some(_) => finding(Verdict::Good, "lab machine", "ready"),
        // The lab is no guest's need inside the lab itself.
        None if crate::place::inside_lab() => {
            finding(Verdict::Good, "lab machine", "this is the lab machine")
        }
        None => finding(Verdict::Note, "lab machine", "not built").remedy(layout.remedy()),
    });
    findings
}
