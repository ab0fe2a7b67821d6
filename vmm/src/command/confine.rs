//! What a machine's process gives up before its guest runs.

use crate::cli::Run;
use crate::confinement::descriptors::Named;
use crate::confinement::{self, Confinement, Counting, Role};
use crate::control_socket::Subject;
use crate::host::source::Source;
use crate::registry::Claim;
use crate::say;

use anyhow::Result;

/// Of the machine that this process makes next.
pub(super) fn confinement(options: &Run, source: &Source) -> Result<Confinement> {
    say::prepare();
    if options.no_confinement {
        return Ok(Confinement::none());
    }
    confinement::share_one_heap();
    confinement::panic_without_backtraces();
    let counting = if options.pmu.needs_counters() { source.counting() } else { Counting::Nothing };
    Ok(Confinement::prepare(counting)?)
}

/// Confine the main thread of a machine that is ready to run.
pub(super) fn confine(options: &Run, subject: &Subject, claim: &Claim) {
    if subject.confinement.state().is_some() {
        claim.leave_files();
        named_descriptors(options).close();
        subject.confinement.enter(Role::Main);
    }
}

/// Descriptors that files of the command line name.
pub(super) fn named_descriptors(options: &Run) -> Named {
    let paths = [&options.initrd, &options.console, &options.report, &options.overlay].into_iter().flatten();
    let modules = options.modules.iter().map(|module| &module.path);
    let copies = options.copies.iter().map(|copy| &copy.host);
    Named::among([&options.kernel].into_iter().chain(paths).chain(modules).chain(copies).map(AsRef::as_ref))
}
