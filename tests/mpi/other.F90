! Calls MPI by another of Fortran's ways than the program: by mpif.h with ROUTE 8, else by the module mpi_f08.
subroutine other_way(rank, ranks)
  use counts
#if ROUTE != 8
  use mpi_f08
#endif
  implicit none
#if ROUTE == 8
  include 'mpif.h'
#endif
  integer, intent(in) :: rank, ranks
  integer :: value, got, ierror
#if ROUTE == 8
  integer :: request
#else
  type(MPI_Request) :: request
#endif
  value = rank
  call count('MPI_Irecv')
  call MPI_Irecv(got, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), 11, MPI_COMM_WORLD, request, ierror)
  call count('MPI_Send')
  call MPI_Send(value, 1, MPI_INTEGER, mod(rank + 1, ranks), 11, MPI_COMM_WORLD, ierror)
  call count('MPI_Wait')
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
  call count('MPI_Barrier')
  call MPI_Barrier(MPI_COMM_WORLD, ierror)
end subroutine
