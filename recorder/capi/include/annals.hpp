// Annals for C++11 and newer: a thin layer over annals.h. Nothing here throws, allocates or keeps state,
// except annals::check(), which turns a status into an exception.
#ifndef ANNALS_HPP
#define ANNALS_HPP

#include <string>
#include <type_traits>

#include "annals.h"

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#include <stdexcept>
#endif

namespace annals {

// Enters a region until the end of the scope, by return or exception.
class scope {
public:
    explicit scope(annals_region region) noexcept : region_(region) { annals_enter(region_); }
    ~scope() { annals_leave(region_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

private:
    annals_region region_;
};

// The value of an element: numbers by their width and sign, texts without a copy.
template <typename T, typename std::enable_if<std::is_integral<T>::value && sizeof(T) <= 8 &&
                                                  !std::is_same<T, bool>::value,
                                              int>::type = 0>
annals_value value(T number) noexcept
{
    return sizeof(T) == 8 ? (std::is_signed<T>::value ? annals_i64(static_cast<int64_t>(number))
                                                      : annals_u64(static_cast<uint64_t>(number)))
                          : (std::is_signed<T>::value ? annals_i32(static_cast<int32_t>(number))
                                                      : annals_u32(static_cast<uint32_t>(number)));
}
annals_value value(bool) = delete; // no element type is a truth value; pointers would turn into one
inline annals_value value(double number) noexcept { return annals_f64(number); }
inline annals_value value(const char *text) noexcept { return annals_string(text); }
inline annals_value value(const std::string &text) noexcept
{
    return annals_text(text.data(), text.size());
}
inline annals_value value(annals_region region) noexcept { return annals_region_value(region); }
inline annals_value value(annals_value ready) noexcept { return ready; }

// Raises an event of the process's own source, now.
inline annals_status raise(annals_event_type event_type) noexcept { return annals_point(event_type); }
template <typename... T>
annals_status raise(annals_event_type event_type, const T &...values) noexcept
{
    const annals_value list[] = {value(values)...};
    return annals_raise(event_type, list, sizeof...(T));
}

// Raises an event of a source, now by the source's clock.
inline annals_status raise_on(annals_source source, annals_event_type event_type) noexcept
{
    return annals_raise_on(source, event_type, nullptr, 0);
}
template <typename... T>
annals_status raise_on(annals_source source, annals_event_type event_type,
                       const T &...values) noexcept
{
    const annals_value list[] = {value(values)...};
    return annals_raise_on(source, event_type, list, sizeof...(T));
}

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
// Throws when a call of the setup failed. For that only: an event that is refused is counted.
inline void check(annals_status status)
{
    if (status != ANNALS_OK)
        throw std::runtime_error(std::string(annals_status_text(status)) + ": " +
                                 annals_last_error());
}
#endif

} // namespace annals

#endif
