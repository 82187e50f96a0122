! Rank 1 assembles before each barrier: a cause of waiting in a module's procedures. With MODULE, MPI is that of the module `mpi`, else it is
! called through C: libraries have no Fortran. The lines that take the extra time are marked.
module work
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  real(real64), volatile :: sink = 0
contains
  subroutine assemble(cells, turns)
    real(real64), intent(in) :: cells(:)
    integer, intent(in) :: turns
    integer :: turn, i
    do turn = 1, turns
      do i = 1, size(cells) ! extra
        sink = sink + sqrt(cells(i) + turn) / (1 + cells(i)) ! extra
      end do ! extra
    end do
  end subroutine

  subroutine solve(cells, turns)
    real(real64), intent(in) :: cells(:)
    integer, intent(in) :: turns
    integer :: turn
    do turn = 1, turns
      sink = sink + dot_product(cells, cells)
    end do
  end subroutine
end module

program planted
#ifdef MODULE
  use mpi
#endif
  use work
  implicit none
#ifndef MODULE
  interface
    integer(c_int) function begin_mpi() bind(c)
      use, intrinsic :: iso_c_binding, only: c_int
    end function
    subroutine barrier_mpi() bind(c)
    end subroutine
    subroutine end_mpi() bind(c)
    end subroutine
  end interface
#endif
  integer :: rank, step, i
#ifdef MODULE
  integer :: error
#endif
  real(real64) :: cells(20000)
  cells = [(real(i, real64), i = 1, size(cells))]
#ifdef MODULE
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
#else
  rank = begin_mpi()
#endif
  do step = 1, 21
    if (step > 1) then
      call solve(cells, 200)
      if (rank == 1) call assemble(cells, 200)
    end if
#ifdef MODULE
    call MPI_Barrier(MPI_COMM_WORLD, error)
#else
    call barrier_mpi()
#endif
  end do
#ifdef MODULE
  call MPI_Finalize(error)
#else
  call end_mpi()
#endif
end program
