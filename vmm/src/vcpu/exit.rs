//! What a vCPU does about an exit: a free function, so that tests can feed it exits without KVM.

use kvm_ioctls::VcpuExit;

use crate::devices::stop::Stop;
use crate::dump::VcpuDump;

/// What the vCPU's thread does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Enter the guest again.
    Run,
    /// The whole machine stops.
    Stop(Stop),
}

/// An MSR access was not for this processor: #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralProtection;

/// What exits reach. One implementation per kind of machine, so that nothing is dispatched at run time.
pub trait ExitHandler {
    /// The guest reads a port.
    fn port_read(&mut self, port: u16, data: &mut [u8]);
    /// The guest writes a port.
    fn port_write(&mut self, port: u16, data: &[u8]) -> Option<Stop>;
    /// The guest reads memory where there is none.
    fn mmio_read(&mut self, address: u64, data: &mut [u8]);
    /// The guest writes memory where there is none.
    fn mmio_write(&mut self, address: u64, data: &[u8]);
    /// The guest reads a filtered MSR.
    fn rdmsr(&mut self, index: u32) -> Result<u64, GeneralProtection>;
    /// The guest writes a filtered MSR.
    fn wrmsr(&mut self, index: u32, value: u64) -> Result<(), GeneralProtection>;
    /// The guest was interrupted: see whether host counters have overflowed.
    fn kicked(&mut self);
    /// Whether [`emulated`](Self::emulated) is to know in which mode the guest had the port or memory-mapped input or
    /// output of this exit; says so once for each. Asked after every exit, so it must be cheap.
    fn wants_mode(&mut self) -> bool;
    /// The instruction of this exit is done, and the guest had it in kernel mode or in user mode.
    fn emulated(&mut self, kernel: bool);
    /// Whether an overflow interrupt is to be delivered; true once for each. Asked after every exit, so it must be cheap.
    fn take_pmi(&mut self) -> bool;
    /// The vector of an overflow interrupt that does not go by LVTPC; asked as [`take_pmi`](Self::take_pmi) is.
    fn take_vector(&mut self) -> Option<u8>;
    /// Whether the guest has said more than its reader takes, so that this vCPU may not go on; waits a little for the reader. Asked
    /// before every entry, so it must be cheap.
    fn must_wait(&mut self) -> bool {
        false
    }
}

/// An exit handler that can also report what was counted.
pub trait Counting: ExitHandler {
    /// The counts up to now.
    fn dump(&mut self) -> VcpuDump;
    /// The machine has stopped: the counts are final.
    fn finish(&mut self) -> VcpuDump;
}

/// System event of KVM_EXIT_SYSTEM_EVENT: shutdown, reset.
const SYSTEM_EVENT_SHUTDOWN: u32 = 1;
const SYSTEM_EVENT_RESET: u32 = 2;

/// Handle `exit`.
pub fn handle(exit: VcpuExit<'_>, handler: &mut impl ExitHandler) -> Next {
    match exit {
        // First what happens most.
        VcpuExit::X86Wrmsr(access) => {
            *access.error = u8::from(handler.wrmsr(access.index, access.data).is_err())
        }
        VcpuExit::X86Rdmsr(access) => match handler.rdmsr(access.index) {
            Ok(value) => *access.data = value,
            Err(GeneralProtection) => *access.error = 1,
        },
        VcpuExit::IoOut(port, data) => {
            if let Some(stop) = handler.port_write(port, data) {
                return Next::Stop(stop);
            }
        }
        VcpuExit::IoIn(port, data) => handler.port_read(port, data),
        VcpuExit::MmioWrite(address, data) => handler.mmio_write(address, data),
        VcpuExit::MmioRead(address, data) => handler.mmio_read(address, data),
        // With the in-kernel irqchip a halt never leaves KVM, and these two mean only: look again.
        VcpuExit::Hlt | VcpuExit::Intr | VcpuExit::IrqWindowOpen => {}
        // A triple fault resets a PC.
        VcpuExit::Shutdown => return Next::Stop(Stop::Reset),
        VcpuExit::SystemEvent(SYSTEM_EVENT_SHUTDOWN, _) => return Next::Stop(Stop::PowerOff),
        VcpuExit::SystemEvent(SYSTEM_EVENT_RESET, _) => return Next::Stop(Stop::Reset),
        VcpuExit::FailEntry(reason, cpu) => {
            return failed(format!(
                "the processor refused the guest's state (reason {reason:#x}, CPU {cpu})"
            ));
        }
        VcpuExit::InternalError => {
            return failed(
                "KVM met an internal error, most often an instruction it cannot emulate".to_owned(),
            );
        }
        other => return failed(format!("KVM gave an exit that this machine does not use: {other:?}")),
    }
    Next::Run
}

fn failed(reason: String) -> Next {
    Next::Stop(Stop::Failed(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm_ioctls::{MsrExitReason, ReadMsrExit, WriteMsrExit};

    #[derive(Default)]
    struct Log(Vec<String>);

    impl ExitHandler for Log {
        fn port_read(&mut self, port: u16, data: &mut [u8]) {
            self.0.push(format!("in {port:#x}"));
            data.fill(0x5A);
        }
        fn port_write(&mut self, port: u16, data: &[u8]) -> Option<Stop> {
            self.0.push(format!("out {port:#x} {data:?}"));
            (port == 0x600).then_some(Stop::PowerOff)
        }
        fn mmio_read(&mut self, address: u64, data: &mut [u8]) {
            self.0.push(format!("read {address:#x}"));
            data.fill(0xA5);
        }
        fn mmio_write(&mut self, address: u64, data: &[u8]) {
            self.0.push(format!("write {address:#x} {data:?}"));
        }
        fn rdmsr(&mut self, index: u32) -> Result<u64, GeneralProtection> {
            if index == 1 { Ok(42) } else { Err(GeneralProtection) }
        }
        fn wrmsr(&mut self, index: u32, value: u64) -> Result<(), GeneralProtection> {
            self.0.push(format!("wrmsr {index:#x} {value:#x}"));
            if index == 1 { Ok(()) } else { Err(GeneralProtection) }
        }
        fn kicked(&mut self) {}
        fn wants_mode(&mut self) -> bool {
            false
        }
        fn emulated(&mut self, _: bool) {}
        fn take_pmi(&mut self) -> bool {
            false
        }
        fn take_vector(&mut self) -> Option<u8> {
            None
        }
    }

    #[test]
    fn accesses_reach_what_answers_them() {
        let mut log = Log::default();
        let mut data = [0; 2];
        assert_eq!(handle(VcpuExit::IoIn(0x70, &mut data), &mut log), Next::Run);
        assert_eq!(data, [0x5A; 2]);
        assert_eq!(handle(VcpuExit::MmioRead(0xD000_0000, &mut data), &mut log), Next::Run);
        assert_eq!(data, [0xA5; 2]);
        assert_eq!(handle(VcpuExit::MmioWrite(0xD000_0050, &[1]), &mut log), Next::Run);
        assert_eq!(handle(VcpuExit::IoOut(0x3F8, b"x"), &mut log), Next::Run);
        assert_eq!(log.0, ["in 0x70", "read 0xd0000000", "write 0xd0000050 [1]", "out 0x3f8 [120]"]);
    }

    #[test]
    fn msr_accesses_give_a_value_or_a_fault() {
        let mut log = Log::default();
        for (index, want_error, want_value) in [(1, 0, 42), (2, 1, 7)] {
            let (mut error, mut data) = (0, 7);
            let exit =
                ReadMsrExit { error: &mut error, reason: MsrExitReason::Filter, index, data: &mut data };
            assert_eq!(handle(VcpuExit::X86Rdmsr(exit), &mut log), Next::Run);
            assert_eq!((error, data), (want_error, want_value));
            let mut error = 0;
            let exit = WriteMsrExit { error: &mut error, reason: MsrExitReason::Filter, index, data: 9 };
            assert_eq!(handle(VcpuExit::X86Wrmsr(exit), &mut log), Next::Run);
            assert_eq!(error, want_error);
        }
        assert_eq!(log.0, ["wrmsr 0x1 0x9", "wrmsr 0x2 0x9"]);
    }

    #[test]
    fn stops_say_why() {
        let mut log = Log::default();
        assert_eq!(handle(VcpuExit::IoOut(0x600, &[0x34]), &mut log), Next::Stop(Stop::PowerOff));
        assert_eq!(handle(VcpuExit::Shutdown, &mut log), Next::Stop(Stop::Reset));
        assert_eq!(handle(VcpuExit::SystemEvent(2, &[]), &mut log), Next::Stop(Stop::Reset));
        assert_eq!(handle(VcpuExit::Hlt, &mut log), Next::Run);
        for exit in [VcpuExit::FailEntry(1, 2), VcpuExit::InternalError, VcpuExit::Nmi] {
            assert!(matches!(handle(exit, &mut log), Next::Stop(Stop::Failed(_))));
        }
    }
}
