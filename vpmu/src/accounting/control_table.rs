//! The controls of a VM, under ids.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::families::control_data::Control;

/// Controls that have been validated, each under an id, for all vCPUs of one VM.
///
/// Equal controls have one id. Ids begin at 1, only grow, and are never used again, so a vCPU may keep what an id
/// means for as long as it likes. The table is bounded: when it is full, the control whose last use is longest ago
/// is dropped, and a guest that still resumes it is asked to send it again.
///
/// The lock is taken when a control is updated and when a vCPU resumes an id for the first time, never on the hot
/// path.
#[derive(Debug)]
pub struct ControlTable {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: u64,
    /// Counts uses; the stamp of an entry is the time of its last use.
    clock: u64,
    ids: HashMap<Arc<Control>, u64>,
    entries: HashMap<u64, Entry>,
    /// Stamp to id, oldest first.
    order: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Entry {
    control: Arc<Control>,
    stamp: u64,
}

impl ControlTable {
    /// How many controls a table holds unless set otherwise: at 400 bytes each, less than 2 MiB a VM.
    pub const DEFAULT_LIMIT: usize = 4096;

    /// A table of [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT) controls, for the vCPUs of a VM to share.
    pub fn new() -> Arc<Self> {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }

    /// A table of `limit` controls, at least one.
    pub fn with_limit(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), inner: Mutex::default() })
    }

    /// Number of controls held.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether no control is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of `control`, a new one if the table does not hold it.
    pub(crate) fn intern(&self, control: &Control) -> u64 {
        let mut inner = self.lock();
        if let Some(&id) = inner.ids.get(control) {
            inner.touch(id);
            return id;
        }
        if inner.entries.len() >= self.limit {
            inner.drop_oldest();
        }
        inner.last_id += 1;
        inner.clock += 1;
        let (id, stamp) = (inner.last_id, inner.clock);
        let control = Arc::new(control.clone());
        inner.ids.insert(Arc::clone(&control), id);
        inner.entries.insert(id, Entry { control, stamp });
        inner.order.insert(stamp, id);
        id
    }

    /// The control that has this id, if the table still holds it.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Control>> {
        let mut inner = self.lock();
        inner.touch(id);
        inner.entries.get(&id).map(|entry| Arc::clone(&entry.control))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock can panic halfway through a change, so a poisoned table is still sound.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn touch(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.order.remove(&entry.stamp);
            self.clock += 1;
            entry.stamp = self.clock;
            self.order.insert(entry.stamp, id);
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, id)) = self.order.pop_first()
            && let Some(entry) = self.entries.remove(&id)
        {
            self.ids.remove(&entry.control);
        }
    }
}

#[cfg(test)]
mod tests {
    use perfctr_abi::layout::CpuControl;

    use super::*;
    use crate::Model;

    fn control(event: u32) -> Control {
        let mut raw = CpuControl { nractrs: 1, ..CpuControl::default() };
        raw.evntsel[0] = 0x0041_0000 | event;
        Model::K8.check(&raw).unwrap()
    }

    #[test]
    fn equal_controls_have_one_id() {
        let table = ControlTable::new();
        let id = table.intern(&control(1));
        assert_ne!(id, 0);
        assert_ne!(table.intern(&control(2)), id);
        assert_eq!(table.intern(&control(1)), id);
        assert_eq!(table.len(), 2);
        assert_eq!(*table.get(id).unwrap(), control(1));
        assert!(table.get(0).is_none() && table.get(u64::MAX).is_none());
    }

    #[test]
    fn the_hot_path_takes_no_lock() {
        use perfctr_abi::pv::{MSR_BASE, MSR_DOORBELL, MSR_PAGE, MSR_RDPMC, Page, op};
        use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
        use zerocopy::IntoBytes;

        let mem = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let table = ControlTable::new();
        let next_id = table.intern(&control(0xC0));
        let config = crate::PmuConfig {
            model: Model::K8,
            host: crate::HostFamily::K8.processor(),
            core_khz: 1,
            pmu_registers: true,
            rdpmc_faults: true,
        };
        let mut pmu = crate::VirtualPmu::new(config, 0, Arc::clone(&table), crate::sim::SimPmu::new(4));
        pmu.wrmsr(MSR_BASE + MSR_PAGE, 0x1001, &mem);
        let mut doorbell = move |number| {
            let filled = Page { prev: 0x2000, next: 0x2000, next_id, ..Page::default() };
            mem.write_slice(filled.as_bytes(), GuestAddress(0x1000)).unwrap();
            pmu.wrmsr(MSR_BASE + MSR_DOORBELL, number, &mem);
            // The emulated registers as well: another event, off, on, a counter, and what the VMM asks.
            for (msr, value) in [(0, 0x51_00C2), (0, 0x51_00C0), (0, 0), (0, 0x51_00C0), (4, u64::MAX)] {
                pmu.wrmsr(0xC001_0000 + msr, value, &mem);
                pmu.rdmsr(0xC001_0000 + msr);
            }
            pmu.rdmsr(MSR_BASE + MSR_RDPMC);
            pmu.kicked();
            pmu.take_pmi();
            mem.read_obj::<i32>(GuestAddress(0x1000)).unwrap()
        };
        assert_eq!(doorbell(op::RESUME), 0);

        // On another thread, so that a lock taken fails the test instead of hanging it.
        let (done, wait) = std::sync::mpsc::channel();
        let guard = table.lock();
        let thread = std::thread::spawn(move || {
            let results = [op::SWITCH, op::SAMPLE, op::SUSPEND, op::RESUME].map(&mut doorbell);
            done.send(results)
        });
        let results = wait.recv_timeout(std::time::Duration::from_secs(10));
        drop(guard);
        assert_eq!(results, Ok([0; 4]));
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn the_oldest_used_goes_first_and_ids_are_never_reused() {
        let table = ControlTable::with_limit(3);
        let ids = [1, 2, 3].map(|event| table.intern(&control(event)));
        table.intern(&control(1));
        assert!(table.get(ids[1]).is_some());
        let fourth = table.intern(&control(4));
        assert!(table.get(ids[2]).is_none(), "the third was used longest ago");
        assert!(table.get(ids[0]).is_some() && table.get(ids[1]).is_some() && table.get(fourth).is_some());
        let again = table.intern(&control(3));
        assert!(again > fourth);
        assert_eq!(table.len(), 3);
        assert_eq!(table.lock().order.len(), 3);
        assert_eq!(table.lock().ids.len(), 3);
    }
}
