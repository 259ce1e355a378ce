//! An invite code as a QR code (ISO/IEC 18004) of half blocks: each character is two modules, one
//! above the other.

use std::io::{self, IsTerminal as _};

use qrcode::{Color, EcLevel, QrCode};

/// Light modules around the code. The standard asks for four; readers need fewer on a terminal, and
/// with two the usual code fits 80 columns and 24 rows.
const QUIET: usize = 2;
/// White on black, whatever the colours of the terminal are.
const COLOURS: (&str, &str) = ("\x1b[97;40m", "\x1b[0m");

/// A QR code.
pub(super) struct Qr(QrCode);

/// What becomes of a QR code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Showing {
    /// It is printed.
    Printed,
    /// It is left out, and the user should know which size it needs.
    TooSmall {
        /// Columns of the terminal.
        columns: usize,
        /// Rows of the terminal.
        rows: usize,
    },
    /// It is left out.
    LeftOut,
}

impl Qr {
    /// The QR code of an invite code; `None` if that is longer than a QR code can be.
    pub(super) fn of(code: &str) -> Option<Self> {
        // Letters and digits take 5.5 bits each. A screen needs little correction.
        QrCode::with_error_correction_level(code, EcLevel::L).ok().map(Self)
    }

    /// Its columns and rows on a terminal.
    pub(super) fn size(&self) -> (usize, usize) {
        let modules = self.0.width() + 2 * QUIET;
        (modules, modules.div_ceil(2))
    }

    /// What becomes of it: `forced` is the wish of the user, `terminal` the size of the terminal at
    /// standard output, in columns and rows.
    pub(super) fn showing(&self, forced: Option<bool>, terminal: Option<(usize, usize)>) -> Showing {
        // One row is for the prompt.
        let (columns, rows) = (self.size().0, self.size().1 + 1);
        match (forced, terminal) {
            (Some(true), _) => Showing::Printed,
            (Some(false), _) | (None, None) => Showing::LeftOut,
            (None, Some(has)) if has.0 >= columns && has.1 >= rows => Showing::Printed,
            (None, Some(_)) => Showing::TooSmall { columns, rows },
        }
    }

    /// Its lines. On a terminal they have colours; without these, a light background shows the
    /// negative.
    pub(super) fn text(&self, on_terminal: bool) -> String {
        let (columns, rows) = self.size();
        let (begin, end) = if on_terminal { COLOURS } else { ("", "") };
        let line = |row: usize| {
            let blocks = (0..columns).map(|x| match (self.is_light(x, 2 * row), self.is_light(x, 2 * row + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
            format!("{begin}{}{end}\n", blocks.collect::<String>())
        };
        (0..rows).map(line).collect()
    }

    /// Whether a module is light, counted from the corner of the quiet zone.
    fn is_light(&self, x: usize, y: usize) -> bool {
        let inside = |at: usize| at.checked_sub(QUIET).filter(|at| *at < self.0.width());
        match (inside(x), inside(y)) {
            (Some(x), Some(y)) => self.0[(x, y)] == Color::Light,
            _ => true,
        }
    }
}

/// The columns and rows of the terminal at standard output; `None` if it is no terminal, and zeros if
/// it does not know them.
pub(super) fn terminal() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    Some(size.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;
    use weft_roster::invite::{Code, EntryPoint, Seed};
    use weft_roster::network_id::NetworkId;

    use super::*;

    fn code(addresses: &[&str], entry: Option<&str>) -> String {
        let key = |byte: u8| SecretKey::from_bytes(&[byte; 32]).unwrap().public();
        let code = Code {
            network: NetworkId::from_bytes([0xa5; 16]),
            inviter: key(1),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            entry: entry.map(|address| EntryPoint {
                key: key(2),
                address: address.parse().unwrap(),
            }),
            expires: 1_800_000_000,
            seed: Seed::new([7; 16]),
        };
        code.encode().to_string()
    }

    /// The modules of a printed code, without the quiet zone: true is dark.
    fn modules(text: &str, width: usize) -> Vec<Vec<bool>> {
        let mut rows = Vec::new();
        for line in text.lines() {
            let line = line.trim_start_matches(COLOURS.0).trim_end_matches(COLOURS.1);
            let dark = |top: bool| line.chars().map(move |c| !(c == '█' || (c == '▀') == top && c != ' '));
            rows.push(dark(true).collect::<Vec<bool>>());
            rows.push(dark(false).collect::<Vec<bool>>());
        }
        let quiet = |at: &usize| !(QUIET..QUIET + width).contains(at);
        for (y, row) in rows.iter().enumerate() {
            let light = |x: &usize| quiet(&y) || quiet(x);
            assert!(
                (0..row.len()).filter(light).all(|x| !row[x]),
                "the quiet zone in row {y}"
            );
        }
        let inside = rows.iter().skip(QUIET).take(width);
        inside.map(|row| row[QUIET..QUIET + width].to_vec()).collect()
    }

    /// The same code by another encoder (segno 1.6.6: version 6, level L, the same mask).
    #[test]
    fn a_printed_code_is_a_known_matrix() {
        let three = ["203.0.113.7:2121", "10.0.0.1:2121", "192.168.7.1:2121"];
        let known: Vec<&str> = include_str!("qr.txt").lines().collect();
        assert_eq!(code(&three[..1], Some("198.51.100.9:2122")), known[0]);
        let qr = Qr::of(known[0]).unwrap();
        for on_terminal in [false, true] {
            let modules = modules(&qr.text(on_terminal), qr.0.width());
            let row = |row: &Vec<bool>| row.iter().map(|dark| if *dark { '#' } else { '.' }).collect::<String>();
            let printed: Vec<String> = modules.iter().map(row).collect();
            assert_eq!(printed, known[1..]);
        }
        assert_eq!(known.len(), 42);
        // Codes of other lengths.
        let long = ["[2001:db8::1]:2121", "[2001:db8::2]:2121", "[2001:db8::3]:2121"];
        for code in [code(&three, None), code(&long, Some("[2001:db8::9]:2122"))] {
            let qr = Qr::of(&code).unwrap();
            let modules = modules(&qr.text(false), qr.0.width());
            for (y, row) in modules.iter().enumerate() {
                let dark = |x: usize| qr.0[(x, y)] == Color::Dark;
                assert!((0..row.len()).all(|x| row[x] == dark(x)), "row {y}");
            }
        }
    }

    #[test]
    fn a_usual_code_fits_80_columns_and_24_rows() {
        let three = ["203.0.113.7:2121", "10.0.0.1:2121", "192.168.7.1:2121"];
        for (addresses, entry) in [(&three[..], None), (&three[..1], Some("198.51.100.9:2122"))] {
            let code = code(addresses, entry);
            assert!(code.len() <= 195, "{}", code.len());
            let qr = Qr::of(&code).unwrap();
            assert!(qr.size().0 <= 45 && qr.size().1 <= 23, "{:?}", qr.size());
            assert_eq!(qr.showing(None, Some((80, 24))), Showing::Printed);
        }
        // The longest text of that size, and the first beyond it.
        let size = |len: usize| Qr::of(&"A".repeat(len)).unwrap().size();
        assert_eq!((size(195), size(196)), ((45, 23), (49, 25)));
        assert!(Qr::of(&"A".repeat(5_000)).is_none());
    }

    #[test]
    fn it_is_printed_where_it_fits_or_is_forced() {
        let qr = Qr::of(&"A".repeat(195)).unwrap();
        for (forced, terminal, showing) in [
            (None, Some((45, 24)), Showing::Printed),
            (None, Some((44, 24)), Showing::TooSmall { columns: 45, rows: 24 }),
            (None, Some((45, 23)), Showing::TooSmall { columns: 45, rows: 24 }),
            (None, Some((0, 0)), Showing::TooSmall { columns: 45, rows: 24 }),
            (None, None, Showing::LeftOut),
            (Some(false), Some((80, 24)), Showing::LeftOut),
            (Some(true), Some((10, 5)), Showing::Printed),
            (Some(true), None, Showing::Printed),
        ] {
            assert_eq!(qr.showing(forced, terminal), showing, "{forced:?} {terminal:?}");
        }
    }
}
