//! The script a guest runs, and the marks it leaves in its output.

use crate::guest::Guest;

/// `ask` reads from descriptor 3, standard input proper, and writes to 4, standard output proper, so that a case
/// may redirect its own as it likes.
const PRELUDE: &str = "\
exec 3<&0 4>&1
ask() {
    echo \"@@ask $1\" >&4
    read -r answer <&3
}
";

/// The guest halves in their order.
pub(super) fn of(guest: &Guest) -> String {
    let mut script = PRELUDE.to_owned();
    for case in guest.cases {
        let half = (case.guest)(&guest.setting());
        script += &format!("echo '@@begin {}'\n(\n{half}\n) </dev/null 2>&1\necho \"@@end $?\"\n", case.name);
    }
    script + guest.last_command + "\n"
}

/// A line of the script's own.
pub(super) enum Mark<'a> {
    Begin,
    Ask(&'a str),
    End(i32),
}

impl<'a> Mark<'a> {
    pub(super) fn read(line: &'a str) -> Option<Self> {
        let (mark, word) = line.strip_prefix("@@")?.split_once(' ')?;
        match mark {
            "begin" => Some(Self::Begin),
            "ask" => Some(Self::Ask(word)),
            "end" => word.parse().ok().map(Self::End),
            _ => None,
        }
    }
}
