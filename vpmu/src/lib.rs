//! vpmu
