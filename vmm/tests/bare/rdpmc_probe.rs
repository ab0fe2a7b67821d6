//! What the probe of RDPMC finds, against a guest of the machine proper.

use libtest_mimic::Trial;
use perfvisor::host::rdpmc_probe::{Rdpmc, probe};
use vpmu::Model;

use crate::guest::{Given, Step};
use crate::running::run;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("rdpmc_does_in_a_machine_what_the_probe_found", || {
        let found = probe(&kvm_ioctls::Kvm::new()?)?;
        let ran = run(Model::K8, 1, &[Step::Rdpmc(0)]);
        let given = match ran.given[..] {
            [Given::Fault] => Rdpmc::Faults,
            [Given::Value(0)] => Rdpmc::SilentZero,
            [Given::Value(value)] => Rdpmc::Counts(value),
            _ => return Err(format!("{:?}", ran.given).into()),
        };
        assert_eq!(found, given);
        Ok(())
    })]
}
