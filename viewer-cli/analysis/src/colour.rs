//! The colour of a region: by its name alone, so that it is the same in every picture, window and run.

/// A colour: red, green and blue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// The colour as in HTML and SVG: `#rrggbb`.
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    /// The colour mixed with white: `share` in 256 parts is white.
    pub const fn paler(self, share: u16) -> Self {
        const fn mix(value: u8, share: u16) -> u8 {
            (value as u16 + (255 - value as u16) * share / 256) as u8
        }
        Self(mix(self.0, share), mix(self.1, share), mix(self.2, share))
    }
}

/// Colours of regions that exchange or wait for messages: warm ones, as in other tools.
const COMMUNICATION: [Colour; 6] = [
    Colour(0xee, 0x66, 0x77),
    Colour(0xcc, 0x66, 0x77),
    Colour(0xee, 0x88, 0x66),
    Colour(0xaa, 0x33, 0x77),
    Colour(0xff, 0xaa, 0xbb),
    Colour(0x88, 0x22, 0x55),
];

/// Colours of all other regions.
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

/// How the names of regions begin that exchange messages.
const PREFIXES: [&str; 5] = ["MPI_", "PMPI_", "mpi_", "shmem_", "nccl"];

/// Returns the colour of a region by its name. The colours can be told apart by most people who see colours differently
/// (P. Tol, "Colour schemes", SRON/EPS/TN/09-002, 2021: bright, muted and light); with more than a few regions, some share one.
pub fn region_colour(name: &str) -> Colour {
    // FNV-1a with 32 bits (Fowler, Noll, Vo).
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let colours: &[Colour] = match PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        true => &COMMUNICATION,
        false => &OTHERS,
    };
    // The upper half: of the lower bits, few bytes of the name decide.
    colours[(hash >> 16) as usize % colours.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_its_colour_by_name() {
        assert_eq!(region_colour("MPI_Recv"), region_colour("MPI_Recv"));
        assert!(COMMUNICATION.contains(&region_colour("MPI_Waitall")));
        assert!(OTHERS.contains(&region_colour("solve")));
        let names: Vec<String> = (0..400).map(|number| format!("region {number}")).collect();
        for colour in OTHERS {
            let count = names
                .iter()
                .filter(|name| region_colour(name) == colour)
                .count();
            assert!((10..60).contains(&count), "{}: {count}", colour.hex());
        }
    }
}
