//! Guest PMUs, and what their registers, controls and events mean.
//!
//! [`model`] is the table: one entry for each model, made in its family's file of facts, the rules of its controls, and what
//! its events are on a host. [`registers`], [`select`] and [`control_data`] are the words that entries are made of; what
//! families have in common is in `p5_like`, `p6_like`, `amd` and `equivalents`.

pub(crate) mod choice;
pub(crate) mod control_data;
pub(crate) mod facts;
pub(crate) mod model;
pub(crate) mod p4;
pub(crate) mod registers;
pub(crate) mod select;

mod amd;
mod amd_core;
mod amd_v2;
mod c3;
mod cyrix;
mod equivalents;
mod fam10h;
mod generic;
mod intel;
mod k7;
mod k8;
mod p5;
mod p5_like;
mod p6;
mod p6_like;
mod winchip;
