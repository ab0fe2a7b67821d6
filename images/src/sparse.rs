//! The kernel developers' checker of C: address spaces, byte orders, bit-wise types.

use std::path::PathBuf;

use anyhow::Result;

use crate::archive::Archive;
use crate::artefact::{self, Inputs, Key};
use crate::layout::Layout;

/// The checker, ready to run.
pub struct Sparse {
    pub(crate) program: PathBuf,
    pub(crate) key: Key,
}

/// Makes sure the checker is in the cache.
pub fn setup(layout: &Layout, archive: &Archive) -> Result<Sparse> {
    let folder = layout.sparse_folder();
    let pins = archive.pinned("sparse", |archive| Ok(vec![archive.binary("sparse")?]))?;
    let key = pins.iter().fold(Inputs::of("sparse", 1), |inputs, pin| inputs.text(&pin.sha256)).finish();
    // What the package depends on is for its other programs; this one needs the C library alone.
    artefact::ensure(&folder, &key, |scratch| archive.unpack(&pins, scratch))?;
    Ok(Sparse { program: folder.join("usr/bin/sparse"), key })
}
