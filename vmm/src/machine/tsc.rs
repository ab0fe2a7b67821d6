//! The offset between the guest's TSC and the host's.
//!
//! kvm-ioctls wraps KVM_GET_DEVICE_ATTR for a vCPU on other architectures only.
#![allow(unsafe_code)]

use kvm_bindings::{KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, KVMIO, kvm_device_attr};
use kvm_ioctls::VcpuFd;
use vmm_sys_util::ioctl::ioctl_with_ref;
use vmm_sys_util::ioctl_iow_nr;

ioctl_iow_nr!(KVM_GET_DEVICE_ATTR, KVMIO, 0xe2, kvm_device_attr);

/// What the guest's TSC is ahead of the host's, modulo 2^64, in cycles. `None` where KVM does not report it (before
/// Linux 5.16).
pub(super) fn offset(fd: &VcpuFd) -> Option<u64> {
    let mut offset = 0u64;
    let attr = kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: u64::from(KVM_VCPU_TSC_OFFSET),
        addr: (&raw mut offset) as u64,
        flags: 0,
    };
    // SAFETY: `attr.addr` points to the eight bytes that this attribute writes, and `fd` is a vCPU.
    let status = unsafe { ioctl_with_ref(fd, KVM_GET_DEVICE_ATTR(), &attr) };
    (status == 0).then_some(offset)
}
