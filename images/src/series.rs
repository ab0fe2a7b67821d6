//! The kernel series a guest can run, and the names Debian gives them.

/// One kernel series in one of Debian's flavours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// The name users see and the name of the folder in the cache.
    pub name: &'static str,
    /// The package that always depends on the newest image of this series.
    pub image_meta: &'static str,
    /// The same for the headers.
    pub headers_meta: &'static str,
}

/// Guests run this one unless told otherwise, and the lab machine runs it as its host kernel: its KVM answers an
/// RDPMC without a PMU by a fault, where 6.1 answers a silent 0.
pub const DEFAULT: Series = Series {
    name: "6.12",
    image_meta: "linux-image-6.12-cloud-amd64",
    headers_meta: "linux-headers-6.12-cloud-amd64",
};

/// Debian 12's own kernel.
pub const STABLE: Series =
    Series { name: "6.1", image_meta: "linux-image-cloud-amd64", headers_meta: "linux-headers-cloud-amd64" };

/// Every series set up.
pub const ALL: [Series; 2] = [DEFAULT, STABLE];

/// The same kernels as for real machines, and with real-time preemption: modules are built for them, and nothing is
/// booted.
pub const BUILD_ONLY: [Series; 4] = [
    Series {
        name: "6.12-generic",
        image_meta: "linux-image-6.12-amd64",
        headers_meta: "linux-headers-6.12-amd64",
    },
    Series { name: "6.1-generic", image_meta: "linux-image-amd64", headers_meta: "linux-headers-amd64" },
    Series {
        name: "6.12-rt",
        image_meta: "linux-image-6.12-rt-amd64",
        headers_meta: "linux-headers-6.12-rt-amd64",
    },
    Series { name: "6.1-rt", image_meta: "linux-image-rt-amd64", headers_meta: "linux-headers-rt-amd64" },
];
