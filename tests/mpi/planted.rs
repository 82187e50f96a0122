//! Rank 2 assembles before it sends to rank 1: a cause of waiting in generic functions that are inlined. MPI is called through C. Lines that
//! take the extra time are marked.

use std::hint::black_box;

unsafe extern "C" {
    safe fn begin_mpi() -> i32;
    safe fn barrier_mpi();
    safe fn send_mpi(peer: i32);
    safe fn receive_mpi(peer: i32);
    safe fn end_mpi();
}

trait Kernel {
    fn of(&self, cell: f64) -> f64;
}

struct Root(f64);

impl Kernel for Root {
    #[inline]
    fn of(&self, cell: f64) -> f64 {
        (cell + self.0).sqrt() / (1.0 + cell) // extra
    }
}

fn swept(cells: &[f64], kernel: &impl Kernel) -> f64 {
    cells.iter().map(|cell| kernel.of(*cell)).sum() // extra
}

fn assemble(cells: &[f64], turns: u32) {
    for turn in 0..turns {
        black_box(swept(black_box(cells), &Root(turn.into()))); // extra
    }
}

fn solve(cells: &[f64], turns: u32) {
    for _ in 0..turns {
        black_box(black_box(cells).iter().map(|cell| cell * cell).sum::<f64>());
    }
}

fn main() {
    let cells: Vec<f64> = (1..=20_000).map(f64::from).collect();
    let rank = begin_mpi();
    barrier_mpi();
    for _ in 0..20 {
        solve(&cells, 200);
        if rank == 2 {
            assemble(&cells, 200);
            send_mpi(1);
        } else if rank == 1 {
            receive_mpi(2);
        }
    }
    end_mpi();
}
