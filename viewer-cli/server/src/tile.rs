//! A tile: bins of lanes in a binary form that a page can draw.
//!
//! All numbers are little-endian. The head: `ANTL` (4 bytes), number of lanes, number of items (u32 each); for each lane and one
//! more the number of items before it (u32). Then columns of all items: begin and end in bins from the tile's start (f32, f32),
//! region (u32; 2³² − 1: none), calls that end in it (u32, at most 2³² − 1), share of the time that is busy, of the region's time (f32, f32: of one
//! location at most 1), longest call (f32, ns).
//!
//! An item is one bin, or a call, or a part of one, that is alone in its bins: its begin and end are its own then.

use annals_analysis::{BinRange, LaneBin};

/// No region.
const NONE: u32 = u32::MAX;

/// An item of a tile.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Item {
    begin: f32,
    end: f32,
    region: u32,
    calls: u32,
    busy: f32,
    region_share: f32,
    longest_ns: f32,
    is_one_call: bool,
}

fn item(bin: &LaneBin, range: BinRange) -> Item {
    let start_ns = range.window().from_ns;
    let length = range.length_ns() as f64;
    let place = |ns: i64| (ns.saturating_sub(start_ns) as f64 / length) as f32;
    let (begin, end) = match bin.only_ns {
        Some((from_ns, to_ns)) => (place(from_ns), place(to_ns)),
        // All of its calls are at this nanosecond, and have no length.
        None if range.level == 0 && bin.busy_ns == 0 => (bin.place as f32, bin.place as f32),
        None => (bin.place as f32, (bin.place + bin.count) as f32),
    };
    let is_one_call = bin.only_ns.is_some() && bin.calls <= 1;
    let share = |ns: i64| match is_one_call {
        true => 1.0,
        false => (ns as f64 / length) as f32,
    };
    Item {
        begin,
        end,
        region: bin.region.map_or(NONE, |region| region.get()),
        calls: bin.calls.min(u32::MAX.into()) as u32,
        busy: share(bin.busy_ns),
        region_share: share(bin.region_ns),
        longest_ns: bin.longest_ns as f32,
        is_one_call,
    }
}

/// Returns the items of a lane: the parts of one call are one.
fn items(bins: &[LaneBin], range: BinRange) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for bin in bins {
        let item = item(bin, range);
        match items.last_mut() {
            Some(last)
                if last.is_one_call
                    && item.is_one_call
                    && last.calls == 0
                    && last.end == item.begin
                    && last.region == item.region =>
            {
                last.end = item.end;
                last.calls = item.calls;
                last.longest_ns = item.longest_ns;
            }
            _ => items.push(item),
        }
    }
    items
}

/// Returns the tile of some lanes.
pub(crate) fn encode(lanes: &[std::sync::Arc<Vec<LaneBin>>], range: BinRange) -> Vec<u8> {
    let lanes: Vec<Vec<Item>> = lanes.iter().map(|bins| items(bins, range)).collect();
    let count: usize = lanes.iter().map(Vec::len).sum();
    let mut out = Vec::with_capacity(16 + lanes.len() * 4 + count * 28);
    let mut put = |value: u32| out.extend_from_slice(&value.to_le_bytes());
    put(u32::from_le_bytes(*b"ANTL"));
    put(lanes.len() as u32);
    put(count as u32);
    let mut before = 0;
    for items in &lanes {
        put(before);
        before += items.len() as u32;
    }
    put(before);
    let columns: [fn(&Item) -> u32; 7] = [
        |item| item.begin.to_bits(),
        |item| item.end.to_bits(),
        |item| item.region,
        |item| item.calls,
        |item| item.busy.to_bits(),
        |item| item.region_share.to_bits(),
        |item| item.longest_ns.to_bits(),
    ];
    for column in columns {
        lanes.iter().flatten().for_each(|item| put(column(item)));
    }
    out
}
