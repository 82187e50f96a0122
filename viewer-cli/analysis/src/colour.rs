//! The colour of a region: by its name alone, so that it is the same in every picture, window and run.

use crate::lanes::FULL;

/// A colour: red, green and blue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// Returns the colour as in HTML and SVG: `#rrggbb`.
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    /// Returns the colour mixed with white: `share` in 256 parts is white.
    pub const fn paler(self, share: u16) -> Self {
        const fn mix(value: u8, share: u16) -> u8 {
            (value as u16 + (255 - value as u16) * share / 256) as u8
        }
        Self(mix(self.0, share), mix(self.1, share), mix(self.2, share))
    }
}

impl Colour {
    /// Returns the colour with a third of black (0) or white (255).
    fn mixed(self, with: u16) -> Self {
        let mix = |value: u8| ((2 * u16::from(value) + with) / 3) as u8;
        Self(mix(self.0), mix(self.1), mix(self.2))
    }

    /// Returns the colour of columns that are more or less full of a region with this colour, on a page.
    pub fn filled(self, fill: u8, page: Self) -> Self {
        // Even the shortest call shows a quarter of it.
        let share = u32::from(FULL + 3 * fill.min(FULL));
        let whole = 4 * u32::from(FULL);
        let mix = |own: u8, page: u8| {
            let (own, page) = (u32::from(own), u32::from(page));
            ((own * share + page * (whole - share) + whole / 2) / whole) as u8
        };
        Self(
            mix(self.0, page.0),
            mix(self.1, page.1),
            mix(self.2, page.2),
        )
    }

    /// Returns black or white, whichever is easier to read on the colour (luma of ITU-R Recommendation BT.709).
    pub fn ink(self) -> Self {
        let Self(r, g, b) = self;
        let luma = 0.2126 * f32::from(r) + 0.7152 * f32::from(g) + 0.0722 * f32::from(b);
        if luma > 140.0 {
            Self(0, 0, 0)
        } else {
            Self(0xff, 0xff, 0xff)
        }
    }
}

/// Colours of all regions but those of MPI (P. Tol, "Colour schemes", SRON/EPS/TN/09-002, 2021: bright, muted and light
/// without their reds).
const OTHERS: [Colour; 14] = [
    Colour(0x44, 0x77, 0xaa),
    Colour(0x22, 0x88, 0x33),
    Colour(0xcc, 0xbb, 0x44),
    Colour(0x66, 0xcc, 0xee),
    Colour(0x77, 0xaa, 0xdd),
    Colour(0xbb, 0xcc, 0x33),
    Colour(0x44, 0xbb, 0x99),
    Colour(0x33, 0x22, 0x88),
    Colour(0x88, 0xcc, 0xee),
    Colour(0x44, 0xaa, 0x99),
    Colour(0x11, 0x77, 0x33),
    Colour(0x99, 0x99, 0x33),
    Colour(0xdd, 0xcc, 0x77),
    Colour(0xaa, 0xaa, 0x00),
];

/// What MPI functions do, by parts of their names without `MPI_`, in lower case. The first match counts. Each kind has
/// a different red or violet (P. Tol's bright, muted and light schemes).
const MPI: [(&[&str], Colour); 7] = [
    (&["barrier"], Colour(0xaa, 0x33, 0x77)),
    (
        &["bcast", "reduce", "gather", "scatter", "alltoall", "scan"],
        Colour(0x88, 0x22, 0x55),
    ),
    (&["wait", "test"], Colour(0xff, 0xaa, 0xbb)),
    (&["recv", "probe"], Colour(0xee, 0x66, 0x77)),
    (&["send"], Colour(0xee, 0x88, 0x66)),
    (
        &["win_", "put", "get_acc", "accumulate", "fetch", "file_"],
        Colour(0xcc, 0x66, 0x77),
    ),
    // All others: starting, ending, communicators, data types.
    (&[""], Colour(0xc8, 0xa0, 0x78)),
];

/// How the names of MPI's functions begin.
const MPI_PREFIXES: [&str; 3] = ["MPI_", "PMPI_", "mpi_"];

/// Returns the colour of a region by its name alone, so that it is the same in every picture, window and run. MPI's functions
/// have colours by what they do, all others one of 42 by a hash of the name (FNV-1a with 32 bits; G. Fowler, L. C. Noll,
/// K.-P. Vo): 14 hues, each as it is, darker and lighter. Of many regions, some share a colour.
pub fn region_colour(name: &str) -> Colour {
    let of_mpi = MPI_PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    if let Some(function) = of_mpi {
        let function = function.to_lowercase();
        let fits = |parts: &[&str]| parts.iter().any(|part| function.contains(part));
        let kind = MPI.iter().find(|(parts, _)| fits(parts));
        if let Some((_, colour)) = kind {
            return *colour;
        }
    }
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    // The lower bits depend on few bytes of the name.
    let number = (hash >> 12) as usize;
    let colour = OTHERS[number % OTHERS.len()];
    match number / OTHERS.len() % 3 {
        0 => colour,
        1 => colour.mixed(0),
        _ => colour.mixed(0xff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_its_colour_by_name() {
        assert_eq!(region_colour("MPI_Recv"), region_colour("MPI_Irecv"));
        let kinds = [
            "MPI_Send",
            "MPI_Recv",
            "MPI_Wait",
            "MPI_Barrier",
            "MPI_Allreduce",
            "MPI_Put",
            "MPI_Init",
        ];
        let mut colours: Vec<String> = kinds.map(|name| region_colour(name).hex()).to_vec();
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), kinds.len());
        assert!(
            MPI.iter()
                .all(|(_, colour)| region_colour("recv_all") != *colour)
        );
        let names: Vec<String> = (0..400).map(|number| format!("region {number}")).collect();
        let colours: std::collections::BTreeMap<String, usize> =
            names.iter().fold(Default::default(), |mut counts, name| {
                *counts.entry(region_colour(name).hex()).or_default() += 1;
                counts
            });
        assert!(colours.len() >= 40, "{} colours", colours.len());
        assert!(colours.values().all(|count| *count < 30), "{colours:?}");
    }
}
