/* Functions that the room looks up and the runtime over host memory refuses. */
#define REFUSED(name) \
  int name(void) { return 801; }

REFUSED(hipEventElapsedTime)
REFUSED(hipEventSynchronize)
REFUSED(hipHostGetDevicePointer)
REFUSED(hipHostRegister)
REFUSED(hipHostUnregister)
REFUSED(hipMemAddressFree)
REFUSED(hipMemAddressReserve)
REFUSED(hipMemCreate)
REFUSED(hipMemExportToShareableHandle)
REFUSED(hipMemGetAllocationGranularity)
REFUSED(hipMemImportFromShareableHandle)
REFUSED(hipMemMap)
REFUSED(hipMemRelease)
REFUSED(hipMemRetainAllocationHandle)
REFUSED(hipMemSetAccess)
REFUSED(hipMemUnmap)
