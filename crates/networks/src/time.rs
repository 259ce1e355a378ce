//! Times in texts for the user.

const DAY: u64 = 86_400;

/// A time in seconds since 1970 as `2026-11-29 12:00 UTC`. The date follows H. Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms", `civil_from_days`.
#[must_use]
pub fn utc(unix: u64) -> String {
    let of_day = unix % DAY;
    let days = unix / DAY + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Of years that begin in March.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year_of_era + era * 400 + next;
    let (hour, minute) = (of_day / 3_600, of_day / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // Each is what `date -u -d @N` prints.
        for (unix, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13 UTC"),
            (1_795_910_399, "2026-11-28 23:59 UTC"),
            (1_798_761_600, "2027-01-01 00:00 UTC"),
            (u64::from(u32::MAX), "2106-02-07 06:28 UTC"),
        ] {
            assert_eq!(utc(unix), text);
        }
    }
}
