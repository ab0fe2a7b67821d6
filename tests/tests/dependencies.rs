//! What the workspace depends on: licences that allow it, crates.io as the only source, one version of what must be one.
//!
//! It asks cargo, which knows all of this from its cache. Advisories are not looked at: they would need the network.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

const LICENCES: [&str; 4] = ["Apache-2.0", "MIT", "BSD-3-Clause", "Unicode-3.0"];
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Two versions of a macro library in the build are a nuisance; two of a rust-vmm crate are two kinds of guest memory.
const ONCE: [&str; 7] = [
    "kvm-bindings",
    "kvm-ioctls",
    "virtio-bindings",
    "virtio-queue",
    "vm-memory",
    "vm-superio",
    "vmm-sys-util",
];

/// What is wrong with the packages that `cargo metadata` describes.
fn faults(metadata: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let text = |field: &str| package[field].as_str();
        let name = text("name").expect("a name");
        versions.entry(name).or_default().push(text("version").expect("a version"));
        if !text("license").is_some_and(is_allowed) {
            faults.push(format!("{name}: licence {:?}", text("license")));
        }
        match text("source") {
            Some(CRATES_IO) => {}
            // A member of the workspace.
            None => faults.extend(
                package["dependencies"]
                    .as_array()
                    .expect("dependencies")
                    .iter()
                    .filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null())
                    .map(|dependency| format!("{name}: any version of {}", dependency["name"])),
            ),
            Some(source) => faults.push(format!("{name}: from {source}")),
        }
    }
    for name in ONCE {
        match versions.get(name).map_or(&[][..], Vec::as_slice) {
            [_] => {}
            several => faults.push(format!("{name}: versions {several:?}, expected one")),
        }
    }
    faults
}

fn is_allowed(licence: &str) -> bool {
    // Some still write a slash for "or".
    let expression = Expression::parse_mode(licence, ParseMode::LAX);
    expression.is_ok_and(|expression| {
        expression.evaluate(|required| LICENCES.iter().any(|name| required.to_string() == *name))
    })
}

#[test]
fn are_as_they_may_be() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version=1"])
        .args(["--filter-platform=x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(faults(&metadata), [""; 0]);
}

#[test]
fn faults_are_found() {
    let package = |name: &str, version: &str, licence: &str, source: Option<&str>| {
        let dependencies = [serde_json::json!({ "name": "any", "req": "*" })];
        let licence = Some(licence).filter(|licence| !licence.is_empty());
        serde_json::json!({
            "name": name, "version": version, "license": licence, "source": source, "dependencies": dependencies,
        })
    };
    let mut packages: Vec<Value> =
        ONCE.iter().map(|name| package(name, "1.0.0", "MIT", Some(CRATES_IO))).collect();
    assert_eq!(faults(&serde_json::json!({ "packages": packages })), [""; 0]);
    packages.extend([
        package("good", "1.0.0", "(GPL-2.0-only OR MIT/Apache-2.0) AND Unicode-3.0", Some(CRATES_IO)),
        package("copyleft", "1.0.0", "MIT AND GPL-2.0-only", Some(CRATES_IO)),
        package("none", "1.0.0", "", Some(CRATES_IO)),
        package("elsewhere", "1.0.0", "MIT", Some("git+https://example.org/elsewhere")),
        package("kvm-ioctls", "2.0.0", "MIT", Some(CRATES_IO)),
        package("member", "1.0.0", "MIT", None),
    ]);
    assert_eq!(
        faults(&serde_json::json!({ "packages": packages })),
        [
            "copyleft: licence Some(\"MIT AND GPL-2.0-only\")",
            "none: licence None",
            "elsewhere: from git+https://example.org/elsewhere",
            "member: any version of \"any\"",
            "kvm-ioctls: versions [\"1.0.0\", \"2.0.0\"], expected one",
        ]
    );
}
