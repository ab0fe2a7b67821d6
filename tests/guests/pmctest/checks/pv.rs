//! The paravirtual interface to the VMM with garbage, from root: refused, and everything goes on.

#![allow(unsafe_code)] // CPUID, and pages shared with the VMM behind the compiler's back.

mod device;
mod pages;

use anyhow::{Context, Result, ensure};
use perfctr_abi::layout::CpuControl;
use perfctr_abi::pv::{MSR_DOORBELL, MSR_PAGE, MSR_VECTOR, Page, op, result};

use self::device::{PvRegisters, pin_to_cpu_0};
use self::pages::Pages;
use crate::check::Check;
use crate::expect::equal;
use crate::measured::{Measured, control};
use crate::random::Random;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "pv-registers", run: registers },
    Check { name: "pv-refusals", run: refusals },
    Check { name: "pv-garbage", run: garbage },
];

/// An address far beyond any guest's memory.
const BEYOND: u64 = 1 << 45;

/// Run `check` on CPU 0 with a shared page of ours, then give the driver its page back and see that it counts. Nobody
/// else may count there meanwhile: a switch would be an operation on our page.
fn with_own_page(check: impl FnOnce(&PvRegisters, &Pages) -> Result<()>) -> Result<()> {
    pin_to_cpu_0()?;
    let pv = PvRegisters::open()?;
    let pages = Pages::new()?;
    let drivers = pv.read(MSR_PAGE).context("reading the driver's page register")?;
    pv.write(MSR_PAGE, pages.shared_address() | 1).context("registering a page")?;
    let outcome = check(&pv, &pages);
    // Whatever was attached on the way: off, before its memory becomes somebody else's.
    for state in pages.state_addresses() {
        pages.fill(&Page { prev: state, ..Page::default() });
        let _ = pv.write(MSR_DOORBELL, op::SUSPEND);
    }
    pv.write(MSR_PAGE, drivers).context("giving the driver its page back")?;
    outcome?;
    Measured::start()?.is_exact().context("counting afterwards")
}

/// Perform an operation on `page`; the page as the VMM left it.
fn doorbell(pv: &PvRegisters, pages: &Pages, op: u64, page: &Page) -> Result<Page> {
    pages.fill(page);
    pv.write(MSR_DOORBELL, op).with_context(|| format!("operation {op:#x} raised an exception"))?;
    Ok(pages.seen())
}

fn registers() -> Result<()> {
    with_own_page(|pv, pages| {
        let own = pages.shared_address() | 1;
        equal("the page register", pv.read(MSR_PAGE)?, own)?;
        for bad in [own & !1, own | 2, own | 0x800, BEYOND | 1, u64::MAX, 1 << 63 | 1] {
            ensure!(pv.write(MSR_PAGE, bad).is_err(), "page register: {bad:#x} was accepted");
            equal("the page register after a refusal", pv.read(MSR_PAGE)?, own)?;
        }
        ensure!(pv.read(MSR_DOORBELL).is_err(), "the doorbell can be read");
        vector(pv)?;
        pv.write(MSR_PAGE, 0).context("withdrawing the page")?;
        for op in 0..8 {
            ensure!(pv.write(MSR_DOORBELL, op).is_err(), "operation {op} was done without a page");
        }
        pv.write(MSR_PAGE, own).context("registering the page again")
    })
}

fn vector(pv: &PvRegisters) -> Result<()> {
    let vector = pv.read(MSR_VECTOR).context("reading the vector")?;
    for bad in [1, 15, 256, u64::MAX] {
        ensure!(pv.write(MSR_VECTOR, bad).is_err(), "vector: {bad:#x} was accepted");
        equal("the vector after a refusal", pv.read(MSR_VECTOR)?, vector)?;
    }
    pv.write(MSR_VECTOR, vector).context("writing the vector that is there")
}

fn refusals() -> Result<()> {
    with_own_page(|pv, pages| {
        let [first, second] = pages.state_addresses();
        let good = Page { control: control().cpu_control, ..Page::default() };
        let expect = |what: &str, op: u64, page: Page, expected: &[i32]| -> Result<Page> {
            let seen = doorbell(pv, pages, op, &page)?;
            ensure!(expected.contains(&seen.result), "{what}: {}, expected one of {expected:?}", seen.result);
            Ok(seen)
        };
        for unknown in [0, op::CONTROL + 1, 0x1_0000_0001, u64::MAX] {
            expect("an unknown operation", unknown, good, &[result::ENOSYS])?;
        }
        let id = expect("a good control", op::UPDATE_CONTROL, good, &[result::OK])?.id;
        let spoilt = |spoil: fn(&mut CpuControl)| {
            let mut page = good;
            spoil(&mut page.control);
            page
        };
        let reserved = spoilt(|control| control.evntsel[0] |= 0x0020_0000);
        expect("reserved bits", op::UPDATE_CONTROL, reserved, &[result::EPERM])?;
        let many = spoilt(|control| control.nractrs = u32::MAX);
        expect("2^32-1 counters", op::UPDATE_CONTROL, many, &[result::EINVAL])?;

        for bad in [first + 8, first + 1, BEYOND, u64::MAX, !0xFFF, 1] {
            let to = Page { next: bad, next_id: id, ..good };
            expect("a control for a bad address", op::UPDATE_CONTROL, to, &[result::EFAULT])?;
            expect("resume of a bad address", op::RESUME, to, &[result::EFAULT])?;
            let from = Page { prev: bad, ..good };
            let not_there = [result::EFAULT, result::ESRCH];
            expect("suspend of a bad address", op::SUSPEND, from, &not_there)?;
            expect("sample of a bad address", op::SAMPLE, from, &not_there)?;
            let both = Page { prev: bad, next: bad, next_id: id, ..good };
            expect("switch between bad addresses", op::SWITCH, both, &not_there)?;
            expect("a control of bad addresses at once", op::CONTROL, both, &[result::EFAULT])?;
        }
        for bad in [0, id ^ (1 << 40), u64::MAX] {
            let unknown = Page { next: first, next_id: bad, ..good };
            expect("resume with an unknown id", op::RESUME, unknown, &[result::EAGAIN])?;
        }
        let detached = Page { prev: second, ..good };
        expect("suspend of a detached state", op::SUSPEND, detached, &[result::ESRCH])?;
        expect("sample of a detached state", op::SAMPLE, detached, &[result::ESRCH])?;
        expect("a good resume", op::RESUME, Page { next: first, next_id: id, ..good }, &[result::OK])?;
        expect("suspend of another state", op::SUSPEND, detached, &[result::ESRCH])?;
        let again = Page { prev: first, next: first, ..good };
        expect("a good control of what runs", op::CONTROL, again, &[result::OK])?;
        let bad = Page { prev: first, next: first, ..reserved };
        expect("a bad control of what runs", op::CONTROL, bad, &[result::EPERM])?;
        expect("what a bad control stopped", op::SUSPEND, Page { prev: first, ..good }, &[result::ESRCH])?;
        expect("a good control", op::CONTROL, Page { next: first, ..good }, &[result::OK])?;
        expect("a good suspend", op::SUSPEND, Page { prev: first, ..good }, &[result::OK])?;
        Ok(())
    })
}

/// Pages of random content. Only addresses are chosen with care: ours, or none of the guest's, for where the
/// guest has the VMM write, the loss is the guest's own.
fn garbage() -> Result<()> {
    with_own_page(|pv, pages| {
        let mut random = Random::new(1);
        for _ in 0..3_000 {
            let mut page = Page::default();
            for word in pages::words_of(&mut page) {
                *word = if random.below(3) == 0 { 0 } else { random.next() as u32 };
            }
            let addresses = pages.state_addresses();
            let mut address = || match random.below(4) {
                0 => addresses[0],
                1 => addresses[1],
                2 => BEYOND + random.next() % BEYOND,
                _ => addresses[0] + 1 + random.below(4094),
            };
            (page.prev, page.next) = (address(), address());
            page.next_id = match random.below(3) {
                0 => random.next(),
                _ => random.below(64),
            };
            if random.below(2) == 0 {
                page.control = control().cpu_control;
            }
            if random.below(4) == 0 {
                page.control.nractrs = random.below(20) as u32;
            }
            let op = if random.below(8) == 0 { random.next() } else { 1 + random.below(6) };
            doorbell(pv, pages, op, &page)?;
            if random.below(16) == 0 {
                pages.scribble(&mut || random.next());
            }
        }
        Ok(())
    })
}
