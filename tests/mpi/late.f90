! Rank 0 works longest before each message; three ranks wait for it. The calls are those of the module mpi_f08.
program late
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    integer(c_int) function usleep(us) bind(c)
      import c_int
      integer(c_int), value :: us
    end function
  end interface
  integer :: rank, size, step, value(1), i
  integer(c_int) :: slept
  type(MPI_Request) :: request
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  value = 0
  do step = 1, 10
    slept = usleep(merge(20000, 5000, rank == 0))
    if (rank == 0) then
      do i = 1, size - 1
        call MPI_Send(value, 1, MPI_INTEGER, i, 7, MPI_COMM_WORLD)
      end do
    else
      call MPI_Irecv(value, 1, MPI_INTEGER, 0, 7, MPI_COMM_WORLD, request)
      call MPI_Wait(request, MPI_STATUS_IGNORE)
    end if
    call MPI_Barrier(MPI_COMM_WORLD)
  end do
  call MPI_Finalize()
end program
