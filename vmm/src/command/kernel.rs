//! What `--kernel` names, and which options go with it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use images::layout::Layout;
use images::regular_file::RegularFile;

use crate::cli::Run;
use crate::machine::boot::{self, Protocol};

/// How the kernel is started, found out from its file.
pub(super) fn protocol(options: &Run) -> Result<Protocol> {
    if options.kernel_series().is_some() {
        return Ok(Protocol::Linux);
    }
    let kernel = &options.kernel;
    if !kernel.exists() {
        let series: Vec<_> = Layout::series().collect();
        bail!("kernel {}: there is no such file; built in are {}", kernel.display(), series.join(" and "));
    }
    Ok(boot::recognize(kernel)?)
}

/// Options that make no sense with a kernel of this kind: `bare` has no agent in it.
pub(super) fn check_options(options: &Run, bare: bool) -> Result<()> {
    let kernel = options.kernel.display();
    if !bare {
        if !options.modules.is_empty() {
            bail!(
                "--module is for PVH and multiboot kernels; Linux has an initial RAM disk (--initrd), and files by --copy"
            );
        }
        return Ok(());
    }
    let remedy = if !options.argv.is_empty() {
        "runs no command; words for it go after --append, and a command needs a Linux kernel"
    } else if !options.copies.is_empty() || options.overlay.is_some() {
        "has no file system to copy to; files for it go after --module"
    } else if options.tty {
        "has no terminal; its serial port is written to standard output, or where --console says"
    } else {
        return Ok(());
    };
    bail!("kernel {kernel}: it is a PVH or multiboot kernel, without an agent of perfvisor's: it {remedy}")
}

/// The kernel and the initial RAM disk that belongs to it.
pub(super) fn images(options: &Run) -> Result<(PathBuf, Option<PathBuf>)> {
    let layout = Layout::open()?;
    if let Some(series) = options.kernel_series() {
        let image = layout
            .kernel(series)
            .with_context(|| format!("the {series} kernel is not there; {}", layout.remedy()))?;
        let kernel = image.uncompressed.unwrap_or(image.bzimage);
        return Ok((kernel, Some(options.initrd.clone().unwrap_or(image.initramfs))));
    }
    let kernel = options.kernel.clone();
    if let Some(initrd) = &options.initrd {
        return Ok((kernel, Some(initrd.clone())));
    }
    // Modules fit one release only. A kernel of another release gets the image of the default series: its init and
    // programs work, its modules do not load, and init says so on the console.
    let release = release(&kernel);
    let images: Vec<_> = Layout::series().filter_map(|series| layout.kernel(series)).collect();
    let fitting = images.iter().find(|image| release.as_ref() == Some(&image.release));
    let default = layout.kernel(Layout::default_series());
    let initrd = fitting.or(default.as_ref()).map(|image| image.initramfs.clone());
    Ok((kernel, Some(initrd.with_context(|| format!("no initial RAM disk is there; {}", layout.remedy()))?)))
}

/// The release that a bzImage states (boot protocol, `kernel_version`).
fn release(kernel: &Path) -> Option<String> {
    use std::os::unix::fs::FileExt;
    let file = RegularFile::open(kernel).ok()?.into_file();
    let mut offset = [0u8; 2];
    file.read_exact_at(&mut offset, 0x20E).ok()?;
    let mut text = [0u8; 128];
    let length = file.read_at(&mut text, u64::from(u16::from_le_bytes(offset)) + 0x200).ok()?;
    let text = text[..length].split(|b| *b == 0 || *b == b' ').next()?;
    String::from_utf8(text.to_vec()).ok()
}
