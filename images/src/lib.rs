//! What perfvisor boots, and how it is made.
//!
//! Two kinds of users: the VMM asks [`layout`] where the images are and [`overlay`] for the files a user wants in
//! a guest; `cargo xtask` makes the images with [`setup`].
//!
//! Everything comes from Debian's archive as packages that are unpacked, never installed ([`archive`]), and from
//! this repository. Every artefact is built under the hash of all its inputs ([`artefact`]), in a scratch place, and
//! renamed into the cache when complete: what is in the cache is whole and current, however a set-up ended.

pub mod alioth;
pub mod archive;
pub mod artefact;
mod bundle;
pub mod checkpatch;
pub mod dkms;
pub mod headers;
pub mod initramfs;
pub mod kernels;
pub mod lab;
pub mod layout;
pub mod modinfo;
pub mod modules;
pub mod older;
pub mod overlay;
pub mod packages;
pub mod perf;
pub mod process;
pub mod progress;
pub mod qemu;
pub mod regular_file;
pub mod series;
pub mod setup;
pub mod sparse;
pub mod tree;
mod uncompressed;
