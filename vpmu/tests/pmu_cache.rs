//! What both kernel modules remember of the processor's registers (`vpmu/pmu/cache.c`), compiled for user space and run on
//! registers that are none: `pmu_cache/main.c`.

use std::path::Path;
use std::process::Command;

#[test]
fn counts_are_right_and_nobody_sees_anothers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pmu-cache");
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(folder.join("tests/pmu_cache/include"))
        .arg("-I")
        .arg(folder.join("pmu"))
        .arg(folder.join("tests/pmu_cache/main.c"))
        .arg(folder.join("pmu/cache.c"))
        .status();
    assert!(compiled.expect("gcc, which the modules need too").success(), "it does not compile");
    let ran = Command::new(&program).output().expect("the program runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
