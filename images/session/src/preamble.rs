//! What a session begins with; see [`sync`](crate::sync).

/// Begins a session. The first byte occurs only once, which keeps the search for it simple.
pub const MAGIC: [u8; 16] = *b"\xff\xfePERFVISOR-S1\xfe\xfd";

/// Begins the agent's answer.
pub const ECHO_MAGIC: [u8; 16] = *b"\xff\xfdPERFVISOR-A1\xfd\xfe";

/// Length of a nonce.
pub const NONCE_LEN: usize = 16;

/// Tells one session from another.
pub type Nonce = [u8; NONCE_LEN];

pub(crate) const PREAMBLE_LEN: usize = MAGIC.len() + NONCE_LEN;

/// What a host sends first.
pub fn preamble(nonce: &Nonce) -> [u8; PREAMBLE_LEN] {
    join(&MAGIC, nonce)
}

/// What the agent answers.
pub fn echo(nonce: &Nonce) -> [u8; PREAMBLE_LEN] {
    join(&ECHO_MAGIC, nonce)
}

fn join(magic: &[u8; 16], nonce: &Nonce) -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    bytes[..MAGIC.len()].copy_from_slice(magic);
    bytes[MAGIC.len()..].copy_from_slice(nonce);
    bytes
}

/// Cuts data behind the first byte of every magic in it.
pub(crate) fn split_at_magic(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let data = rest.take()?;
        match position_of_magic(data) {
            Some(at) => {
                let (piece, tail) = data.split_at(at + 1);
                rest = Some(tail);
                Some(piece)
            }
            None => Some(data),
        }
    })
    .filter(|piece| !piece.is_empty())
}

/// Looks at whole windows only behind the first byte: all input and all files go through here.
fn position_of_magic(data: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        from += data[from..].iter().position(|&byte| byte == MAGIC[0])?;
        if data[from..].starts_with(&MAGIC) {
            return Some(from);
        }
        from += 1;
    }
}
