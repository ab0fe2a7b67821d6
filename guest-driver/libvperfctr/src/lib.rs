//! guest-driver/libvperfctr
