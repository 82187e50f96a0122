! A ring in Fortran: old interface, and that of Fortran 2008 where the compiler has its module.
program hello
  use mpi
  implicit none
  integer :: ierror, rank, ranks, step, value, got, next, before, total
  integer :: status(MPI_STATUS_SIZE), requests(2)
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  next = mod(rank + 1, ranks)
  before = mod(rank + ranks - 1, ranks)
  value = rank
  do step = 1, 10
    call MPI_Irecv(got, 1, MPI_INTEGER, before, step, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Isend(value, 1, MPI_INTEGER, next, step, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
    value = got + 1
    call MPI_Sendrecv(value, 1, MPI_INTEGER, next, 77, got, 1, MPI_INTEGER, before, 77, &
                      MPI_COMM_WORLD, status, ierror)
  end do
  call MPI_Allreduce(value, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  print '(a,i0,a,i0,1x,i0)', 'rank ', rank, ': ', total, got
  call MPI_Finalize(ierror)
end program hello
